package shim

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/proc"
)

// A stray is a child of this process that is no shim: an orphan of a command whose shim is gone.

const (
	// defaultStrayLimit is how long strays may take to end. Those that hang in the kernel, and those that start others as fast
	// as they are killed, take longer.
	defaultStrayLimit = 3 * time.Second
	// strayInterval is the time between two looks.
	strayInterval = time.Millisecond
)

// endStrays kills and reaps some shims, and strays until none is left, and reports whether that is so. A process that is killed
// leaves its children here, so that whole trees end. Nobody else reaps meanwhile, so that a list without strays is true: whoever
// was in it is in the next one too, or has left its children there. The caller holds children.
func (p *Pool) endStrays(shims ...int) bool {
	deadline := time.Now().Add(p.strayLimit)
	for {
		alive, reaped := reap(append(p.strays(), shims...))
		switch {
		case len(alive) == 0 && reaped == 0:
			return true
		case time.Now().After(deadline):
			return false
		}
		killGroups(alive)
		if reaped == 0 {
			time.Sleep(strayInterval)
		}
	}
}

// strays are the children of this process that are no shims. The kernel gives orphans to the first thread.
func (p *Pool) strays() []int {
	return slices.DeleteFunc(proc.Children(os.Getpid()), func(pid int) bool { return p.shims[pid] })
}

// killGroups kills strays, and their groups, so that none escapes by forking. Each command has a session of its own, so its
// groups have no other members.
func killGroups(strays []int) {
	done := map[int]bool{unix.Getpgrp(): true}
	for _, pid := range strays {
		// At once: it may be about to start the next one and end.
		_ = unix.Kill(pid, unix.SIGKILL)
		if stray, ok := proc.Read(pid); ok && stray.Group > 1 && !done[stray.Group] {
			done[stray.Group] = true
			_ = unix.Kill(-stray.Group, unix.SIGKILL)
		}
	}
}

// reap takes away the ends of children. It returns those that live, and how many didn't. Those that were reaped before are neither.
func reap(children []int) (alive []int, reaped int) {
	for _, pid := range children {
		switch got, err := unix.Wait4(pid, nil, unix.WNOHANG|unix.WALL, nil); {
		case got == pid:
			reaped++
		case err == nil || errors.Is(err, unix.EINTR):
			alive = append(alive, pid)
		}
	}
	return alive, reaped
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
