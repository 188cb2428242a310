package dispatch_test

import (
	"testing"
)

func TestAWaitingRunnerIsGivenToOneCallAndKeptForIt(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	first, second := connectedRunner(t, o, "a"), connectedRunner(t, o, "b")
	o.hub.Offer(first, "t")
	o.hub.Offer(first, "t")
	o.hub.Offer(second, "t")
	if n := o.hub.Waiting("t"); n != 2 {
		t.Fatalf("%d wait", n)
	}
	if s := o.hub.Take("other", "x", "x"); s != nil {
		t.Error("a runner of another template was given")
	}
	taken := o.hub.Take("t", "call", "c1")
	if taken != first {
		t.Error("the one that waited longest was not given")
	}
	if again := o.hub.Take("t", "call", "c1"); again != taken {
		t.Error("the same call got a second runner")
	}
	if other := o.hub.Take("t", "call2", "c2"); other != second {
		t.Error("another call did not get the other runner")
	}
	if o.hub.Take("t", "call3", "c3") != nil {
		t.Error("a third call got a runner of two")
	}
	if o.hub.Withdraw("a-uid") || !o.hub.Busy("a-uid") {
		t.Error("a runner that a call took was withdrawn")
	}
	o.hub.Offer(first, "t")
	if o.hub.Waiting("t") != 0 {
		t.Error("a runner that a call took was offered again")
	}
	if taken.Call() != "call" || o.hub.Taken("c1") != taken {
		t.Error("the claim isn't kept")
	}
	o.hub.Settle("c1")
	if o.hub.Taken("c1") != nil {
		t.Error("the claim was not settled")
	}
}

func TestAWithdrawnRunnerIsNotGiven(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	s := connectedRunner(t, o, "a")
	o.hub.Offer(s, "t")
	if !o.hub.Withdraw("a-uid") || !o.hub.Withdraw("unknown") {
		t.Error("a waiting runner can't be withdrawn")
	}
	if o.hub.Take("t", "call", "c1") != nil {
		t.Error("it was given all the same")
	}
}

func TestARunnerThatWentIsNotGiven(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	conn := connect(t, runnerOf(t, podEnv(o, "a")), "")
	s := o.event(t)
	o.hub.Offer(s, "t")
	conn.Close()
	o.event(t)
	if o.hub.Take("t", "call", "c1") != nil || o.hub.Waiting("t") != 0 {
		t.Error("a runner that went is still in the stock")
	}
}

func TestAClaimFollowsTheRunnerToItsNextConnection(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	config := runnerOf(t, podEnv(o, "a"))
	connect(t, config, "")
	s := o.event(t)
	o.hub.Offer(s, "t")
	o.hub.Take("t", "call", "c1")
	connect(t, config, "")
	next := o.event(t)
	if o.hub.Taken("c1") != next || next.Call() != "call" {
		t.Error("the claim did not follow")
	}
}
