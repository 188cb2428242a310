// Package runner starts one process, captures its output, stops it, and describes how it ended.
//
// Its input is a command with its exact environment, a directory as a handle or a path, and a context. The result is a
// result.Outcome. The package knows nothing of Kubernetes and doesn't decide what may run.
//
// Run has two halves, which package shim has in two processes: Capture has one end of the pipes of the process, and keeps, redacts
// and shows what comes; Execute has the other end, starts the process, and ends it with all that it started.
//
// Invariants:
//   - Run returns in bounded time after the end of the process, its timeout and grace, or the end of the context,
//     whatever the process and its descendants do;
//   - when Run returns, no process that the command started is left, not even as a zombie: the kernel has said that this
//     process has no child. If that takes longer than killLimit, the outcome says so;
//   - memory is bounded by the command's MaxBytesPerStream, and the process is never blocked or killed for writing too
//     much. What is kept on disk of its output is bounded by KeepBytesPerStream, and a disk that is full or broken doesn't
//     disturb it (package kept);
//   - the process gets the file descriptors 0, 1 and 2, and no others;
//   - values to redact are in nothing that Run keeps, shows or returns of the output. What else the outcome says, such as a
//     message, is for the caller to redact, and to shorten;
//   - there is an exit code only for a process that ended by itself.
//
// In the first process of a PID namespace, all other processes of the namespace belong to the command. Elsewhere Run makes
// its process a child subreaper, and all of its descendants belong to the command. The program must have no other children
// while Execute runs, as they would be ended with the command. Only one Execute runs at a time; others wait.
//
// The package must import nothing of Kubernetes: it is linked into the supervisor that runs in every pod, which stays small. It works
// on Linux only.
package runner
