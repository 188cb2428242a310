package kernel

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childTrapped is the first code of a child that has stopped and not ended.
const childTrapped = 4

// Peek returns a child that has changed its state, without taking that away; 0 for none. It has ended, and can be reaped, or a trace
// holds it for a moment: waiting for it would take that from the trace. The error is ECHILD when there is no child.
func Peek() (pid int, hasEnded bool, err error) { return peek(-1, unix.WNOHANG) }

// peek is Peek of one child, or of any if of is -1.
func peek(of, options int) (pid int, hasEnded bool, err error) {
	kind := unix.P_PID
	if of < 0 {
		kind, of = unix.P_ALL, 0
	}
	var info unix.Siginfo
	err = unix.Waitid(kind, of, &info, unix.WEXITED|unix.WNOWAIT|unix.WALL|options, nil)
	if err != nil || info.Signo == 0 {
		return 0, false, err
	}
	// The process ID is the first field of the union that follows the codes.
	raw := (*[unsafe.Sizeof(info)]byte)(unsafe.Pointer(&info))
	return int(int32(binary.LittleEndian.Uint32(raw[16:]))), info.Code < childTrapped, nil
}
