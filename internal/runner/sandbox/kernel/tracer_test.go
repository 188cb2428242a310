package kernel

import (
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel forgets that a process is to stop if the process starts another one at that moment. The tracer asks again.
func TestAProcessThatStartsOthersSettles(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range 30 {
		cmd := exec.Command("sh", "-c", "while :; do (:); done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := cmd.Process.Pid
		// Its end also ends the wait.
		late := time.AfterFunc(20*time.Second, func() { _ = unix.Kill(pid, unix.SIGKILL) })
		err := seize(pid, followAll)
		if err == nil {
			err = settle(pid)
		}
		if !late.Stop() || err != nil {
			t.Errorf("it doesn't settle: %v", err)
		}
		_ = cmd.Process.Kill()
		for {
			// What it started is traced too. The ends of all of them stop as well.
			started, err := unix.Wait4(-1, nil, unix.WALL, nil)
			if err != nil {
				break
			}
			resume(started, unix.PTRACE_CONT, unix.SIGKILL)
		}
		_ = cmd.Process.Release()
		if t.Failed() {
			return
		}
	}
}
