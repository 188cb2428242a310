package sockets

import (
	"testing"
	"time"
)

// Each sweep looks at all descriptors of all processes.
func TestSweepsThatFindNothingBecomeRare(t *testing.T) {
	g, s, _ := newTestGate(t)
	defer g.Close()
	// Nobody has been given the sockets: no sweep drops one.
	g.sweepWithin(soonSweep)
	for n, seconds := range []int{2, 4, 8, 16, 32, 60, 60} {
		g.sweep()
		if want := time.Duration(seconds) * time.Second; g.sweepEvery != want || time.Until(g.nextSweep) > want {
			t.Errorf("after %d sweeps the next one comes within %s, at %s", n+1, g.sweepEvery, g.nextSweep)
		}
	}
	// What a command may close soon is looked at soon.
	g.sweepWithin(soonSweep)
	if g.sweepEvery != soonSweep || time.Until(g.nextSweep) > soonSweep {
		t.Errorf("with a new socket the next one comes within %s, at %s", g.sweepEvery, g.nextSweep)
	}
	g.sweep()
	// No process but this one has it.
	s.given = true
	g.sweep()
	if !s.suspect || g.sweepEvery != soonSweep {
		t.Errorf("with a socket that seems closed the next one comes within %s", g.sweepEvery)
	}
	if g.sweep(); g.find(s.inode) != nil {
		t.Error("a socket that nobody has is held")
	}
}

func TestWhoMakesASocketDoesNotWaitForASweep(t *testing.T) {
	g, _, _ := newTestGate(t)
	defer g.Close()
	g.sweeping.Lock()
	defer g.sweeping.Unlock()
	newTestSocket(t, g)
}
