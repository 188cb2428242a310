package supervisor

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// reaper is the only place that waits for processes: as the namespace's first
// process it gets every orphan's end, among them those of its own children.
type reaper struct {
	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus
}

func newReaper() *reaper {
	return &reaper{waiting: map[int]chan syscall.WaitStatus{}}
}

// start runs a program; its end is sent on the returned channel.
func (r *reaper) start(args []string, attr *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(args[0], args, attr)
	if err != nil {
		return 0, nil, err
	}
	ended := make(chan syscall.WaitStatus, 1)
	r.waiting[pid] = ended
	return pid, ended, nil
}

func (r *reaper) run(ctx context.Context) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	for {
		r.reapAll()
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
	}
}

func (r *reaper) reapAll() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if pid <= 0 {
			return
		}
		r.deliver(pid, status)
	}
}

func (r *reaper) deliver(pid int, status syscall.WaitStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ended, ok := r.waiting[pid]; ok {
		delete(r.waiting, pid)
		ended <- status
	}
}
