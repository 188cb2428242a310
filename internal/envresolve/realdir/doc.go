// Package realdir opens the working directory of a call on the real file system, so that the directory
// that was checked is the one that the process starts in.
//
// It drives the rules of package envresolve with a file system that it opens name by name: every
// directory on the way is held open from the moment it is looked at, its names are looked up relative to
// that handle and never followed by the kernel, and a name that was looked up once keeps its answer. So
// whatever is renamed or relinked meanwhile, the handle that OpenDir returns is the very directory that the
// rules allowed. The caller starts the process there with fchdir on the handle, never by the path.
//
// The package must not write, must not depend on /proc (the runner can't read its own), and decides
// nothing itself: what is allowed is envresolve's to say.
package realdir
