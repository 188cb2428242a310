package sockets

import "testing"

// A socket may be on its way from one process to another while one looks.
func TestASocketThatNobodyHasForTwoSweepsIsGivenUp(t *testing.T) {
	g, s, _ := newTestGate(t)
	defer g.Close()
	// Nobody has been given the sockets: no sweep drops one.
	for range 3 {
		g.sweep()
	}
	if g.find(s.inode) != s {
		t.Fatal("a socket that nobody was given was given up")
	}
	// No process but this one has it.
	close(s.given)
	if g.sweep(); g.find(s.inode) != s {
		t.Error("one sweep gives it up")
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
