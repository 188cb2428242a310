// Package faults breaks things under the installed operator while calls are in flight, and counts what comes of
// them: whether every call ended, whether a command ran twice, whether each result is there byte for byte.
//
// Every call's command appends one line to a ledger, a file on the node that all calls of a test share, so that a
// second start of the same command can't hide. Its two streams are known in advance, some longer than what the
// policy keeps, part of them written before the command sleeps and part after.
//
// The tests work on the local cluster only: they stop its components and reach into its node. They run when
// TOOLCALL_FAULTS=1, as `make test-faults` sets it, one at a time, and leave every component running. A summary is
// printed at the end, and written as JSON into the file that TOOLCALL_FAULTS_REPORT names.
package faults
