// Package shim runs several commands at the same time, each with a process tree of its own.
//
// A shim is this program's own binary, started again: it runs one command after the other with runner.Execute, and is the child
// subreaper of each. So every orphan of a command stays a descendant of the command's shim, and is ended with the command
// while other commands go on. Pool starts the shims, gives them commands over a socket, and keeps a few of them for the
// commands to come. Package init makes every program that imports the package able to be a shim.
//
// Invariants:
//   - a command that was given to a shim is never given to another one;
//   - when Run returns, no process that the command started is left, also when the shim was killed. Then the command's
//     orphans become children of this process, where every child that is no shim is one to be ended. This process must
//     start no other children. What can't be ended within strayLimit costs this process: the end of the first process of a
//     container ends all others;
//   - Run returns in bounded time after the command's timeout or the end of the context, also when the shim is stopped or
//     doesn't answer;
//   - a shim that something of a command is left in is not used again;
//   - this process reads the output of all commands, so that what was read is there also when a shim is lost.
//
// A shim has no variables but PATH, and is given commands only after it has protected itself as runner.Harden does: what
// the variables of this process hold can't be read in it. Before that, for a few milliseconds, a command of the same user
// that no Landlock domain holds could trace it; one that is traced when it is ready isn't used. A command that no domain
// holds can kill shims, since they run as the same user. The commands of a session belong to one caller.
//
// When the memory of the container's control group is nearly used up, the pool ends the command that takes the most of it:
// the kernel would end them all, and this process as well.
//
// The package must import nothing but the standard library, golang.org/x/sys, package result, and packages of the runner.
package shim
