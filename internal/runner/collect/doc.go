// Package collect keeps files that a call made, for readers after its end.
//
// It copies what the call's globs match into one file that no name leads to, so that what is read later is what was hashed,
// whoever changes the files meanwhile. Which files a glob reaches, package files says: it is held to what the kernel opened.
//
// Invariants:
//   - nothing outside the write paths, and nothing denied, is read; devices, sockets and FIFOs aren't opened;
//   - the number of files, the size of each and of all are bounded, on disk and in memory, whatever the tree is like;
//   - it ends soon after its context, and what is kept by then stays;
//   - what can't be kept is counted and said, and is never a failure of the call.
//
// The package is linked into every tool pod. It works on Linux only.
package collect
