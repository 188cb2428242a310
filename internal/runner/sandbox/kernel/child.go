package kernel

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childTrapped is the first code of a child that has stopped and not ended.
const childTrapped = 4

// State is what a process waits to be asked for.
type State int

// States of a child.
const (
	// Ended says that the child can be reaped.
	Ended State = iota + 1
	// Traced says that a trace holds the child for a moment. Waiting for it would take that from the trace.
	Traced
)

// Peek reports whether a child has changed its state, and which, without taking it away: 0 for none. pid is -1 for any
// child. The error is ECHILD when there is none.
func Peek(pid int) (int, State, error) {
	return peek(pid, unix.WNOHANG)
}

func peek(pid, options int) (int, State, error) {
	kind := unix.P_PID
	if pid < 0 {
		kind, pid = unix.P_ALL, 0
	}
	var info unix.Siginfo
	err := unix.Waitid(kind, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WALL|options, nil)
	if err != nil || info.Signo == 0 {
		return 0, 0, err
	}
	state := Ended
	if info.Code >= childTrapped {
		state = Traced
	}
	// The process ID is the first field of the union that follows the codes.
	raw := (*[unsafe.Sizeof(info)]byte)(unsafe.Pointer(&info))
	return int(int32(binary.LittleEndian.Uint32(raw[16:]))), state, nil
}
