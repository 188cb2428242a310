package sandbox

import (
	"os"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/sockets"
)

// The runtime interrupts its threads with signals. A descriptor that is being given is given nevertheless: the kernel
// would let the command go on with 0 for it.
func TestSignalsDoNotTakeADescriptorAway(t *testing.T) {
	c := &command{network: &sockets.Network{Connections: allow1()}, argv: []string{programPath(t, "python3"), "-c", pythonPrelude + `
import stat
bad = 0
for i in range(5000):
    fd = libc.socket(2, 1 + i % 2, 0)
    if fd < 3 or not stat.S_ISSOCK(os.fstat(fd).st_mode): bad += 1
    else: os.close(fd)
print(bad)`}}
	r := c.start(t)
	stop := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for {
			entries, _ := os.ReadDir("/proc/self/task")
			for _, e := range entries {
				select {
				case <-stop:
					return
				default:
					tid, _ := strconv.Atoi(e.Name())
					_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG)
				}
			}
		}
	})
	out, _ := r.wait()
	close(stop)
	sending.Wait()
	if out != "0\n" {
		t.Errorf("of 5000 sockets this many weren't: %s", out)
	}
}
