package sandbox

import (
	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/filter"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// Probe finds out what the node gives, by trying it: on a thread that ends afterwards, and on a stage.
func Probe(stage *Stage) rules.Support {
	var s rules.Support
	kernel.OnThreadOfItsOwn(func() {
		s.LandlockABI = kernel.TryLandlock()
		s.Listener, s.AddDescriptor = tryListener()
		s.Filter = s.Listener || tryFilter()
	})
	if stage != nil {
		// On another thread: what is in a domain can't trace what isn't.
		kernel.OnThreadOfItsOwn(func() { s.ReadMemory, s.Trace = kernel.TryTrace(stage.PID) })
	}
	return s
}

// tryListener installs a filter with a listener that never asks anything. It holds for the calling thread.
func tryListener() (listens, adds bool) {
	fd, err := filter.Try(true)
	if err != nil {
		return false, false
	}
	defer unix.Close(fd)
	return true, kernel.Listener(fd).AddsDescriptors()
}

// tryFilter installs a filter that permits everything. It holds for the calling thread.
func tryFilter() bool {
	_, err := filter.Try(false)
	return err == nil
}
