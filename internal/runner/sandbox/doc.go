// Package sandbox holds a call's processes to rules by means of the kernel, without privileges: which programs they
// execute, which files they read and write, whom they signal, and what they connect to.
//
// Two walls stand for each call, and both hold for everything that the command starts:
//
//   - a Landlock domain. The kernel asks it about the file that it has opened, so that there is no time between check
//     and use. Only listed programs, their helpers and the loaders that they name can be executed.
//   - a seccomp filter with a listener. The kernel hands each execve and execveat to the gate in this process before it
//     goes on. The gate refuses what isn't listed, so that the refusal is counted and explained, and what Landlock can't
//     tell: a loader that is started by hand, files without a name in memory, the names of multi-call programs. A
//     program can change its memory between the gate's look and the kernel's, so the gate traces the process up to the
//     end of its execve, before the new program's first instruction, compares what really runs, and kills it if it may
//     not run.
//
// The filter also refuses what would get around the gate: tracing, writing another process's memory, other
// architectures' calls, io_uring, user namespaces, chroot. It includes the filter of a denied network: one filter holds
// all, because a process can have one listener only.
//
// A thread of this process enters the domain, sets the filter (Start.Fork), starts the command and ends, before the
// command's first instruction: the command could end this process by a signal to a thread in its own domain (kernel.Hold). A command whose
// programs are listed is started in a stage instead. That is this program's own binary, started again, which sets domain
// and filter on itself and then executes the command: a Go program that starts another one can't run what the gate needs
// until the other one has executed its program. Init makes every program that imports the package able to be the stage.
// Starting it takes milliseconds, so one can be started ahead.
//
// Connections are held where the rules say so, by the same two walls. The filter hands socket, connect, bind, listen and
// sendto with an address to the gate. The gate makes each IPv4 and IPv6 socket itself and keeps a descriptor of it. At
// connect it reads the address once, asks sockets.Connections, and connects on its own descriptor; the kernel never goes on with
// a connect of such a socket. The Landlock domain grants no TCP connection at all, so a descriptor that is swapped under
// the look reaches nothing. UDP sockets are made unable to send: an answer to a query is the gate's own datagram. The
// filter refuses other kinds of sockets, fast open, source routes and protocols that connect past Landlock.
//
// What of this stands is the way (rules.Way) that the node gives: without Landlock the gate and its trace hold programs; before Linux 6.7
// the gate makes and connects Unix sockets too, since no domain would stop another socket in the place of one that the kernel connects; and
// where the kernel can't ask, a tracer follows all processes of the call and looks at each program before its first instruction.
//
// When this process ends, the kernel answers each further execve, socket and connect of the call with ENOSYS, or kills what is traced.
//
// A multi-call program can run its other programs without an execve. AskMultiCall finds out which kind a listed one is.
//
// Not held: what a listed interpreter computes, what such a multi-call program runs where the rules permit it, and
// connecting to Unix sockets that have a path. Landlock holds the executed file alone where only a look holds the name. Of
// the network, what comes in isn't held: a command can listen, and answer who connects to it. Nor are sockets held that a
// process outside the call passes to it: one for TCP that is connected, or one for UDP.
//
// Its parts are packages of their own: kernel has Landlock, notifications and traces, filter the system calls that are refused and asked
// about, programs the look at each execve, and sockets what is connected to. This one prepares a domain of them, and starts commands in it.
//
// Package kernel uses golang.org/x/sys/unix for Landlock. The rules are built in this process from descriptors that are
// already open and set on one thread of another process, which github.com/landlock-lsm/go-landlock doesn't offer.
package sandbox
