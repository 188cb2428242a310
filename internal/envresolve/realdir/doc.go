// Package realdir opens the working directory of a call on the real file system, so that the process starts in the
// directory that was checked.
//
// It applies the rules of package envresolve to a file system that it opens name by name. It keeps each directory of the
// path open, looks up names relative to that handle without following links, and looks up each name only once. So
// renaming and relinking at the same time doesn't matter: OpenDir returns a handle of the directory that the rules
// allowed. The caller starts the process there with fchdir on the handle, never by the path.
//
// The package must not write, must not depend on /proc, since the runner can't read its own, and must not decide what
// is allowed.
package realdir
