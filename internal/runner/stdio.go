package runner

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Pipes are the files of a process, and what is said about them between the one who has the other ends and the one who starts
// the process.
type Pipes struct {
	// Child are the process's standard input, output and error. Whoever starts the process closes them then.
	Child [3]*os.File
	// Started is called when the process runs.
	Started func(at time.Time)
	// Drained is closed when all that was written is read, and nobody can write more.
	Drained <-chan struct{}
}

// Close closes the process's files here.
func (p *Pipes) Close() { closeAll(p.Child[:]) }

func (p *Pipes) fds() []uintptr {
	return []uintptr{p.Child[0].Fd(), p.Child[1].Fd(), p.Child[2].Fd()}
}

// files are both ends of a process's files. The process's ends block, as programs expect, from when their descriptors are asked for.
// Ours don't, so that reads and writes can be interrupted.
type files struct {
	child                 [3]*os.File
	stdin, stdout, stderr *os.File
	// poll tells which of stdout and stderr has something.
	poll *os.File
}

// pipeSize lets a fast writer go on while output is hashed. If the kernel refuses it, that only costs speed.
const pipeSize = 256 << 10

func newFiles(cmd *Command) (f *files, err error) {
	f = &files{}
	defer func() {
		if err != nil {
			closeAll(append(f.child[:], f.stdin, f.stdout, f.stderr))
			err = fmt.Errorf("prepare input and output: %w", err)
		}
	}()
	switch {
	case cmd.Input != nil:
		f.child[0] = cmd.Input
	case len(cmd.Stdin) == 0:
		f.child[0], err = os.Open(os.DevNull)
	default:
		f.child[0], f.stdin, err = os.Pipe()
	}
	if err != nil {
		return f, err
	}
	if f.stdout, f.child[1], err = outputPipe(); err != nil {
		return f, err
	}
	if f.stderr, f.child[2], err = outputPipe(); err != nil {
		return f, err
	}
	f.poll, err = newPoll(f.stdout, f.stderr)
	return f, err
}

func outputPipe() (own, child *os.File, err error) {
	if own, child, err = os.Pipe(); err == nil {
		_, _ = unix.FcntlInt(child.Fd(), unix.F_SETPIPE_SZ, pipeSize)
	}
	return own, child, err
}

// closeAll closes those of the files that there are.
func closeAll(files []*os.File) {
	for _, file := range files {
		if file != nil {
			file.Close()
		}
	}
}
