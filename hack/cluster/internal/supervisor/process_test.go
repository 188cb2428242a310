package supervisor

import (
	"context"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func startNode(t *testing.T, components ...Component) *node {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := newReaper()
	go r.run(ctx)
	n := newNode(Plan{LogDir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}, Components: components}, r)
	for _, p := range n.processes {
		go p.run(ctx)
	}
	t.Cleanup(func() { n.shutDown(); cancel() })
	return n
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func TestAComponentIsRestartedUntilItIsStopped(t *testing.T) {
	n := startNode(t, Component{Name: "a", Args: []string{"/bin/sleep", "1000"}})
	p := n.processes[0]
	eventually(t, "running", func() bool { return p.status().PID > 0 })
	first := p.status().PID
	if err := n.handle(t.Context(), Request{Verb: "kill", Component: "a"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "running again", func() bool { s := p.status(); return s.PID > 0 && s.PID != first })
	if s := p.status(); s.Restarts != 1 || s.LastEnd != "signal killed" {
		t.Errorf("status is %+v", s)
	}
	if err := n.handle(t.Context(), Request{Verb: "stop", Component: "a"}); err != nil {
		t.Fatal(err)
	}
	if s := p.status(); s.State != StateStopped || s.PID != 0 {
		t.Errorf("after stop: %+v", s)
	}
	if err := n.handle(t.Context(), Request{Verb: "start", Component: "a"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "started", func() bool { return p.status().PID > 0 })
}

func TestAComponentWaitsForWhatItNeeds(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	n := startNode(t,
		Component{Name: "a", Args: []string{"/bin/sleep", "1000"}, Ready: "unix://" + socket},
		Component{Name: "b", Args: []string{"/bin/sleep", "1000"}, After: []string{"a"}})
	eventually(t, "a runs", func() bool { return n.processes[0].status().PID > 0 })
	if s := n.processes[1].status(); s.State != StateWaiting {
		t.Errorf("b didn't wait: %+v", s)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	eventually(t, "b runs", func() bool { return n.processes[1].status().PID > 0 })
}

func TestOrphansAreReaped(t *testing.T) {
	r := newReaper()
	pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "reaped", func() bool { r.reapAll(); return syscall.Kill(pid, 0) == syscall.ESRCH })
}

func TestUnknownRequestsAreRefused(t *testing.T) {
	n := startNode(t, Component{Name: "a", Args: []string{"/bin/sleep", "1000"}})
	for _, req := range []Request{{Verb: "stop", Component: "b"}, {Verb: "explode", Component: "a"}} {
		if err := n.handle(t.Context(), req); err == nil {
			t.Errorf("%+v was accepted", req)
		}
	}
}
