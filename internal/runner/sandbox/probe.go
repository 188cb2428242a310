package sandbox

import (
	"toolcall.dev/operator/internal/runner/sandbox/filter"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// Probe finds out what the node gives, by trying it: on a thread that ends afterwards, and on a stage.
func Probe(stage *Stage) rules.Support {
	var s rules.Support
	kernel.OnThreadOfItsOwn(func() {
		s.LandlockABI = kernel.TryLandlock()
		if fd, err := filter.Try(true); err == nil {
			l := kernel.Listener(fd)
			s.Filter, s.Listener, s.AddDescriptor = true, true, l.AddsDescriptors()
			l.Close()
		} else {
			_, err = filter.Try(false)
			s.Filter = err == nil
		}
	})
	if stage != nil {
		// On another thread: what is in a domain can't trace what isn't.
		kernel.OnThreadOfItsOwn(func() { s.ReadMemory, s.Trace = kernel.TryTrace(stage.PID) })
	}
	return s
}
