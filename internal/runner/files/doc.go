// Package files reads, writes and searches files for a call, without a process: the runner does it itself.
//
// Its input is a request and the Rules that hold for it. Do returns what was asked for (the bytes of a Read, and one JSON
// object a line for List, Glob, Grep and Stat) and a Result, or an *Error whose Reason is part of the API.
//
// Invariants:
//   - Rules are checked on what the kernel opened. A path is resolved name by name, each with openat2 beneath the
//     descriptor of the directory before it and without following a link. A link is read from its own descriptor, and its
//     target is resolved in the same way, so no link, "..", magic link or race leads out of the allowed directories. What
//     was opened is then used by its descriptor, or by one name in its parent's;
//   - a denied glob holds for every directory, link and file on the way, whatever the case of its letters. The package
//     can't tell hard links: a file with an allowed name and a denied one is allowed by the first;
//   - nothing reaches the paths of the runner's own, by their names. What another process moved or linked elsewhere has
//     another name;
//   - nothing is in the output that Rules.Hidden names, whatever is cut: a line, a page or the results. It is
//     asked for a page, and for the lines that a Grep found, with as much around them as can matter: it hides texts of several
//     lines. Sums, offsets and what a Grep matches are those of the file;
//   - a directory that another process moves out of an allowed directory meanwhile is still the one that was opened;
//   - files of the kernel's own file systems (proc, sysfs, cgroups and others) are refused, wherever they are mounted.
//     The runner's own entries in /proc are among them;
//   - devices, sockets and FIFOs are never opened where they were found. A name is opened with O_PATH first, which calls no
//     driver and wakes no peer, and opened for reading only if it is a regular file. A Grep goes by the types in the list of
//     the directory instead, which is faster. Whoever swaps the file for another between the two steps gets that one opened
//     and closed, never read: O_NONBLOCK and O_NOCTTY keep it from waiting and from taking a terminal, but a process that
//     waits to write to a FIFO wakes up, and a device's driver is called;
//   - a Write or an Edit happens as a whole or not at all. A process that is killed in between can leave a hidden
//     temporary file, nothing else;
//   - memory is bounded whatever the size of a file or a tree. An operation ends soon after its context: a match of an
//     expression reads its line step by step where it could take long. Of a line longer than 256 KiB, the start is searched;
//   - what matches an expression, package regexp decides alone. Texts of which a match contains one only leave out lines
//     before.
//
// Package sys opens and reads, patterns has what names and lines are compared with.
//
// The package needs openat2 (Linux 5.6) and refuses every request without it. It must not depend on /proc, start
// processes, or import other modules than the standard library, golang.org/x/sys and golang.org/x/text: it is linked into the
// supervisor that runs in every pod. It works on Linux only.
package files
