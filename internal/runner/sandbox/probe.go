package sandbox

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// Probe finds out what the node gives, by trying it: on a thread that ends afterwards, and on a stage.
func Probe(stage *Stage) rules.Support {
	var s rules.Support
	onThreadOfItsOwn(func() {
		s.LandlockABI = probeLandlock()
		s.Listener, s.AddDescriptor = probeListener()
		s.Filter = s.Listener || probeFilter()
	})
	if stage != nil {
		// On another thread: what is in a domain can't trace what isn't.
		onThreadOfItsOwn(func() { s.ReadMemory, s.Trace = probeProcess(stage.PID) })
	}
	return s
}

// probeLandlock enters a domain that refuses making block devices only. It holds for the calling thread.
func probeLandlock() int {
	abi := landlockABI()
	if abi == 0 || unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != nil {
		return 0
	}
	r, err := newRuleset(unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK, 0, 0)
	if err != nil {
		return 0
	}
	defer r.file.Close()
	if restrictSelf(int(r.file.Fd())) != nil {
		return 0
	}
	return abi
}

// probeListener installs a filter with a listener that never asks anything. It holds for the calling thread.
func probeListener() (listens, adds bool) {
	fd, err := install([]unix.SockFilter{allow}, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
	if err != nil {
		return false, false
	}
	defer unix.Close(fd)
	// No call waits under this number.
	none := addDescriptor{id: ^uint64(0), source: uint32(fd)}
	errno := listener(fd).ioctl(unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&none))
	return true, errno == unix.ENOENT
}

// probeFilter installs a filter that permits everything. It holds for the calling thread.
func probeFilter() bool {
	_, err := install([]unix.SockFilter{allow}, 0)
	return err == nil
}

// probeProcess reads the memory of a child and traces it for a moment. The calling thread traces nothing else.
func probeProcess(pid int) (reads, traces bool) {
	// Where the child's program lies is in its own header, which a static program has at a fixed address; any answer but
	// a refusal says that reading is allowed.
	_, err := target(pid).read(make([]byte, 8), pageSize)
	reads = err == nil || errors.Is(err, unix.EFAULT)
	if seize(pid, followAll) != nil || unix.PtraceInterrupt(pid) != nil {
		return reads, false
	}
	var status unix.WaitStatus
	for {
		got, err := unix.Wait4(pid, &status, unix.WALL, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || got != pid || !status.Stopped() {
			return reads, false
		}
		detach(pid, 0)
		return reads, true
	}
}
