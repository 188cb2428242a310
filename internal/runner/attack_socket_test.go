package runner

import (
	"crypto/rand"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// A socket without a file is reached by its name alone, from every process of the pod. Landlock scopes them.
func TestAbstractSocketsOutsideAreOutOfReach(t *testing.T) {
	if Prepare().LandlockABI < rules.ABIScopes {
		discardStage()
		t.Skip("this kernel's Landlock doesn't scope abstract sockets")
	}
	discardStage()
	for _, held := range []bool{true, false} {
		a := newAttacker(t)
		name := "toolcall-" + rand.Text()
		stream, packets := listenAt(t, unix.SOCK_STREAM, name), listenAt(t, unix.SOCK_DGRAM, name+"d")
		r, want := a.rules(), 0
		if !held {
			r, want = nil, 2
		}
		o := a.run(t, r, "abstract", name)
		reached := 0
		if fd, _, err := unix.Accept(stream); err == nil {
			reached++
			unix.Close(fd)
		}
		if n, _, err := unix.Recvfrom(packets, make([]byte, 8), 0); err == nil && n > 0 {
			reached++
		}
		if reached != want || strings.Count(text(o.Stdout), "escaped") != want || strings.Contains(text(o.Stdout), "cannot") || o.Reason != result.Completed {
			t.Errorf("held %v: %d of 2 sockets were reached: %s", held, reached, describe(o))
		}
	}
}

// listenAt makes a socket at an abstract name. Nothing that is asked of it waits.
func listenAt(t *testing.T, kind int, name string) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + name}); err != nil {
		t.Fatal(err)
	}
	if kind == unix.SOCK_STREAM {
		if err := unix.Listen(fd, 1); err != nil {
			t.Fatal(err)
		}
	}
	return fd
}
