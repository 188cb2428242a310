// Package runner starts one process, captures what it writes, stops it, and says how it ended.
//
// Inputs are a command with its exact environment, an open directory or a path, and a context; the result
// is a result.Outcome. It knows nothing of Kubernetes and decides nothing about what may run.
//
// Invariants:
//   - Run always returns in bounded time after the process's end, its timeout plus grace, or its
//     context's end, whatever the process and its descendants do;
//   - when it returns, nothing that the process started is left running, and no zombie of it;
//   - memory is bounded by the command's MaxBytesPerStream, however much is written, and the process is
//     never blocked or killed for writing too much;
//   - the child gets the file descriptors 0, 1 and 2 (and 3 for a source) and no other;
//   - an exit code is only given for a process that ended by itself.
//
// As the first process of a PID namespace every other process in it belongs to the command. Elsewhere Run
// makes its process a child subreaper and tells the command's processes from older children by having
// looked at those first; so while Run works, the rest of the program must not start processes: they would
// be taken for the command's. One Run works at a time; others wait for it.
//
// It must not import anything but the standard library, golang.org/x/sys and the result package: it is
// linked into the supervisor that every pod starts. It works on Linux only.
package runner
