package sandbox

import (
	"syscall"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/filter"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
	"toolcall.dev/operator/internal/runner/sandbox/programs"
	"toolcall.dev/operator/internal/runner/sandbox/sockets"
)

// Start is a command to start.
type Start struct {
	// Domain is nil for a command that nothing restricts.
	Domain *Domain
	// Program is the path, relative to the directory, that is executed with Argv and Env.
	Program   string
	Argv, Env []string
	// Directory is the open working directory, Files are the descriptors from 0 on.
	Directory int
	Files     []uintptr
	// DenyNetwork makes all sockets but Unix sockets fail.
	DenyNetwork bool
	// Network decides about connections. Where the domain holds connections and nothing decides about them, there are none.
	Network *sockets.Network
	// Wake is called when a child of this process may have changed its state unseen.
	Wake func()
}

// RestrictionError is why nothing was started: the domain couldn't be entered.
type RestrictionError struct{ error }

// Fork starts a command whose domain needs no stage, in a session of its own. A thread that is used for nothing else enters the domain: the
// command inherits the restriction, the other threads of this process don't. The process is nil without a domain.
func (c *Start) Fork() (p *Process, pid int, err error) {
	attr := &syscall.ProcAttr{
		// The path of the descriptor, in the child, can't be made to lead elsewhere.
		Dir:   kernel.FDPath(c.Directory),
		Env:   append([]string{}, c.Env...), // nil would be our own
		Files: c.Files,
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	if c.Domain == nil {
		pid, err = syscall.ForkExec(c.Program, c.Argv, attr)
		return nil, pid, err
	}
	options := c.options()
	attr.Sys.Ptrace = c.Domain.isScoped()
	var thread int
	kernel.OnThreadOfItsOwn(func() {
		if p, err = c.enter(options); err != nil {
			err = &RestrictionError{err}
			return
		}
		thread = unix.Gettid()
		switch pid, err = syscall.ForkExec(c.Program, c.Argv, attr); {
		case err != nil:
			p.Stop()
		case attr.Sys.Ptrace:
			kernel.Hold(pid)
		}
	})
	if err == nil && attr.Sys.Ptrace {
		kernel.Release(pid, thread)
	}
	return p, pid, err
}

// enter puts the calling thread and what it starts into the domain. The thread must be used for nothing but a start afterwards.
func (c *Start) enter(options filter.Options) (*Process, error) {
	p := &Process{domain: c.Domain}
	if options.Asks() {
		kernel.ReserveWorkers() // whose threads aren't restricted
	}
	listener, err := restrictThread(c.Domain.ruleset.Descriptor(), options)
	if err == nil && options.Asks() {
		p.gate, err = c.newGate(p, kernel.Listener(listener), options)
	}
	return p, err
}

// options are the parts of the filter that the command needs.
func (c *Start) options() (o filter.Options) {
	d := c.Domain
	switch {
	case d.programs != nil && d.way.Trace:
		o |= filter.Traced
	case d.programs != nil:
		o |= filter.Programs
	}
	if d.way.ListsTruncate(d.rules) {
		o |= filter.NoTruncate
	}
	switch {
	case c.DenyNetwork, d.rules.Connections && c.Network == nil:
		return o | filter.DenyNetwork
	case !d.rules.Connections:
		return o
	}
	o |= filter.Network
	if c.Network.UDP {
		o |= filter.UDP
	}
	if d.way.MakesAllSockets() {
		o |= filter.AllSockets
	}
	return o
}

// newGate starts to answer for a process. It takes the listener, also after an error.
func (c *Start) newGate(p *Process, l kernel.Listener, options filter.Options) (*gate, error) {
	var listed *programs.Gate
	if options.Has(filter.Programs) {
		listed = programs.NewGate(p.watch, l, c.Wake)
	}
	var held *sockets.Network
	if options.Has(filter.Network) {
		held = c.Network
	}
	return newGate(l, listed, held, options.Has(filter.AllSockets))
}
