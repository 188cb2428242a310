package faults

import (
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// No packet of a runner reaches the operator for a minute, on connections that are there and on new ones.
func TestOperatorUnreachable(t *testing.T) {
	b := newBed(t)
	l := b.newLoad(t, inFlight, longest)
	l.awaitBegun(t, inFlight/2)
	pod, err := b.leader(t.Context())
	must(t, err)
	open := unreachable(t, managers(pod)[0])
	pause(t, time.Minute)
	open()
	l.verify(t, "operator unreachable for a minute", l.recover(t, time.Now()))
}

// unreachable drops what comes to the runners' port in a process's network namespace, until open is called or the
// test ends. The rule goes with the pod, at the latest.
func unreachable(t *testing.T, process int) (open func()) {
	t.Helper()
	rule := func(verb string) error {
		return exec.Command("nsenter", "-t", strconv.Itoa(process), "-n",
			"iptables", verb, "INPUT", "-p", "tcp", "--dport", "9443", "-j", "DROP").Run()
	}
	must(t, rule("-I"))
	closed := true
	open = func() {
		if closed {
			must(t, rule("-D"))
		}
		closed = false
	}
	t.Cleanup(open)
	return open
}
