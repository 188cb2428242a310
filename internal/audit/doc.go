// Package audit records who did what, where, and how it ended: a Record for each call and session that has ended, for each
// transfer of a file, and for each decision of a person about a call. Records outlive the objects that they are about.
//
// A Sink takes records: File writes them as lines of JSON into a file that it rotates, Lines into a stream. A Queue writes to a sink in a
// goroutine of its own, tries again what can't be written, and counts what it has no room for.
//
// Invariants: a record is one line, whatever its texts hold. It has no argument, script, variable or output, unless the caller
// gives the arguments to it. Adding to a Queue never waits. A File says which records it has, so that none is written twice.
//
// The package must not read the API: callers give it what they have read.
package audit
