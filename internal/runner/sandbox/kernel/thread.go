package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/proc"
)

// Thread is another process's thread. What is read of one whose system call waits is of that process only if the call still waits
// afterwards: see Listener.IsValid.
type Thread int

// Proc is a path in the thread's directory of /proc.
func (t Thread) Proc(name string) string { return "/proc/" + strconv.Itoa(int(t)) + "/" + name }

const pageSize = 4096

// What a thread may name.
const (
	MaxPath  = 4096
	MaxName  = 256
	MaxLinks = 40
)

// read fills b from the thread's memory, or as much of it as there is.
func (t Thread) read(b []byte, at uint64) (int, error) {
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	remote := []unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}
	return unix.ProcessVMReadv(int(t), local, remote, 0)
}

// Fill fills b from the thread's memory.
func (t Thread) Fill(b []byte, at uint64) unix.Errno {
	for len(b) > 0 {
		n, err := t.read(b, at)
		if err != nil || n == 0 {
			return ErrnoOf(err, unix.EFAULT)
		}
		b, at = b[n:], at+uint64(n)
	}
	return 0
}

// Text reads a string that ends with a zero byte. It never reads over the end of a page at once, since the next one may
// not be there.
func (t Thread) Text(at uint64, limit int) (string, unix.Errno) {
	var text []byte
	buffer := make([]byte, 256)
	for len(text) < limit {
		part := buffer[:min(len(buffer), pageSize-int(at%pageSize))]
		n, err := t.read(part, at)
		if err != nil || n == 0 {
			return "", ErrnoOf(err, unix.EFAULT)
		}
		if end := bytes.IndexByte(part[:n], 0); end >= 0 {
			return string(append(text, part[:end]...)), 0
		}
		text = append(text, part[:n]...)
		at += uint64(n)
	}
	return "", unix.ENAMETOOLONG
}

// Arguments reads the first arguments of a list of pointers; fewer if there are fewer.
func (t Thread) Arguments(at uint64, count int) []string {
	var args []string
	pointer := make([]byte, 8)
	for range count {
		if t.Fill(pointer, at) != 0 {
			return args
		}
		to := binary.LittleEndian.Uint64(pointer)
		if to == 0 {
			return args
		}
		arg, errno := t.Text(to, MaxName)
		if errno == unix.ENAMETOOLONG {
			return append(args, tooLong)
		}
		if errno != 0 {
			return args
		}
		args = append(args, arg)
		at += uint64(len(pointer))
	}
	return args
}

// tooLong stands for an argument that is longer than any name.
const tooLong = "\x00"

// StartedArguments are the first arguments of a process that has just been started: nobody can have changed them yet.
func (t Thread) StartedArguments(count int) []string {
	f, err := os.Open(t.Proc("cmdline"))
	if err != nil {
		return nil
	}
	defer f.Close()
	start := make([]byte, 2*MaxName)
	n, _ := f.Read(start)
	// Each argument ends with a zero byte.
	args := strings.Split(strings.TrimSuffix(string(start[:n]), "\x00"), "\x00")
	for i, arg := range args {
		if len(arg) >= MaxName || n == len(start) && i == len(args)-1 {
			args[i] = tooLong
		}
	}
	return args[:min(len(args), count)]
}

// Executable is the program that a thread runs.
func (t Thread) Executable() string {
	path, err := os.Readlink(t.Proc("exe"))
	if err != nil {
		return "unknown"
	}
	return path
}

// executedPath is the number of the path that was executed in what the kernel tells a program (AT_EXECFN).
const executedPath = 31

// StartedPath is the path that a process was executed by, as the kernel tells it; empty if it can't be read.
func (t Thread) StartedPath() string {
	vector, err := os.ReadFile(t.Proc("auxv"))
	for err == nil && len(vector) >= 16 {
		if binary.LittleEndian.Uint64(vector) == executedPath {
			path, _ := t.Text(binary.LittleEndian.Uint64(vector[8:]), MaxPath)
			return path
		}
		vector = vector[16:]
	}
	return ""
}

// Socket returns the inode of a descriptor of the thread, which must be a socket.
func (t Thread) Socket(fd int) (inode uint64, errno unix.Errno) {
	var st unix.Stat_t
	err := unix.Stat(t.Proc("fd/"+strconv.Itoa(fd)), &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return 0, unix.EBADF
	case err != nil:
		return 0, unix.EACCES
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return 0, unix.ENOTSOCK
	default:
		return st.Ino, 0
	}
}

// SocketProtocol returns the kernel's name for the protocol of a descriptor.
func (t Thread) SocketProtocol(fd int) string {
	name := make([]byte, MaxName)
	n, err := unix.Getxattr(t.Proc("fd/"+strconv.Itoa(fd)), "system.sockprotoname", name)
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(name[:n]), "\x00")
}

// isTracedHere reports whether a thread of this process traces it.
func (t Thread) isTracedHere() bool {
	status, _ := os.ReadFile(t.Proc("status"))
	tracer, err := strconv.Atoi(proc.StatusField(status, "TracerPid"))
	return err == nil && tracer != 0 && unix.Tgkill(os.Getpid(), tracer, 0) == nil
}

// hasSiblings reports whether its process has other threads. Each is a link of its directory of threads.
func (t Thread) hasSiblings() bool {
	var st unix.Stat_t
	return unix.Stat(t.Proc("task"), &st) != nil || st.Nlink > 3
}

// isDead reports whether it has ended and waits to be reaped.
func (t Thread) isDead() bool {
	p, _ := proc.Read(int(t))
	return p.Zombie
}

// isOwnChild reports whether this process is the parent, of a process and not of one of its threads: those are reaped by
// who traces them.
func (t Thread) isOwnChild() bool {
	if unix.Tgkill(int(t), int(t), 0) != nil {
		return false
	}
	p, isThere := proc.Read(int(t))
	return isThere && p.Parent == os.Getpid()
}
