package shim

import (
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/proc"
)

// A stray is a child of this process that is no shim: an orphan of a command whose shim is gone.

const (
	// strayLimit is how long to wait for strays after SIGKILL, which only processes that hang in the kernel survive for a
	// moment.
	strayLimit = 3 * time.Second
	// strayInterval is the time between two looks.
	strayInterval = time.Millisecond
)

// endStrays kills and reaps strays until none is left. A process that is killed leaves its children here, so that whole
// trees end. The caller holds children.
func (p *Pool) endStrays() {
	deadline := time.NewTimer(strayLimit)
	defer deadline.Stop()
	tick := time.NewTicker(strayInterval)
	defer tick.Stop()
	for {
		strays := p.strays()
		if len(strays) == 0 {
			return
		}
		killGroups(strays)
		if reap(strays) {
			continue // their children have appeared
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return
		}
	}
}

// strays are the children of this process that are no shims. The kernel gives orphans to the first thread.
func (p *Pool) strays() []int {
	var strays []int
	for _, pid := range proc.Children(os.Getpid()) {
		if !p.shims[pid] {
			strays = append(strays, pid)
		}
	}
	return strays
}

// killGroups kills the groups of strays, so that none escapes by forking. Each command has a session of its own, so its
// groups have no other members.
func killGroups(strays []int) {
	done := map[int]bool{unix.Getpgrp(): true}
	for _, pid := range strays {
		if stray, ok := proc.Read(pid); ok && stray.Group > 1 && !done[stray.Group] {
			done[stray.Group] = true
			_ = unix.Kill(-stray.Group, unix.SIGKILL)
		}
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// reap takes away the ends of strays, and reports whether there was one.
func reap(strays []int) (reaped bool) {
	for _, pid := range strays {
		got, err := unix.Wait4(pid, nil, unix.WNOHANG|unix.WALL, nil)
		reaped = reaped || err == nil && got == pid
	}
	return reaped
}

// reapStrays takes away the ends of what becomes a child of this process later, such as an orphan of somebody who looks
// into the container.
func (p *Pool) reapStrays(stop <-chan struct{}) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	for {
		select {
		case <-ended:
			p.children.Lock()
			reap(p.strays())
			p.children.Unlock()
		case <-stop:
			return
		}
	}
}
