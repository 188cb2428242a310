package runner

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// childFiles are both ends of the child's files. The child's ends block, as programs expect. The parent's ends don't, so
// that reads and writes can be interrupted.
type childFiles struct {
	stdin, stdout, stderr *os.File
	// poll tells which of stdout and stderr has something.
	poll *os.File
	ends []uintptr
}

// pipeSize lets a fast writer go on while output is hashed. If the kernel refuses it, that only costs speed.
const pipeSize = 256 << 10

func newChildFiles(cmd *Command) (f *childFiles, err error) {
	f = &childFiles{}
	defer func() {
		if err != nil {
			f.closeOurs()
			f.closeChild()
			err = fmt.Errorf("prepare input and output: %w", err)
		}
	}()
	if f.stdin, err = f.input(cmd); err != nil {
		return f, err
	}
	if f.stdout, err = f.output("stdout"); err != nil {
		return f, err
	}
	if f.stderr, err = f.output("stderr"); err != nil {
		return f, err
	}
	f.poll, err = newPoll(f.stdout, f.stderr)
	return f, err
}

// input gives the child its input: a pipe, or /dev/null if there is none.
func (f *childFiles) input(cmd *Command) (*os.File, error) {
	if cmd.Input != nil {
		fd, err := unix.FcntlInt(cmd.Input.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			f.ends = append(f.ends, uintptr(fd))
		}
		return nil, err
	}
	if len(cmd.Stdin) == 0 {
		if fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			f.ends = append(f.ends, uintptr(fd))
			return nil, nil
		}
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	f.ends = append(f.ends, uintptr(p[0]))
	return parentEnd(p[1], "stdin")
}

func (f *childFiles) output(name string) (*os.File, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	_, _ = unix.FcntlInt(uintptr(p[0]), unix.F_SETPIPE_SZ, pipeSize)
	f.ends = append(f.ends, uintptr(p[1]))
	return parentEnd(p[0], name)
}

func parentEnd(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (f *childFiles) child() []uintptr { return f.ends }

func (f *childFiles) closeChild() {
	for _, fd := range f.ends {
		unix.Close(int(fd))
	}
	f.ends = nil
}

func (f *childFiles) closeOurs() {
	for _, file := range []*os.File{f.stdin, f.stdout, f.stderr, f.poll} {
		if file != nil {
			file.Close()
		}
	}
}
