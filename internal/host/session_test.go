package host

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
)

// theOwner is the session of sessionOf.
var theOwner = wire.Owner{Kind: wire.KindSession, UID: "s1", Name: "session", Incarnation: 1}

// sessionOf is a session that records a runner.
func sessionOf(runner *dispatch.Runner, maxConcurrent int32) *v1alpha1.ToolSession {
	s := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "session", UID: "s1"}}
	s.Spec.MaxConcurrentCalls = ptr.To(maxConcurrent)
	s.Status = v1alpha1.ToolSessionStatus{Pod: "a-pod", Incarnation: 1, Runner: &v1alpha1.RunnerBinding{PodUID: "a-pod-uid", KeyHash: runner.KeyHash()}}
	return s
}

func begin(t *testing.T, runner *dispatch.Runner) {
	t.Helper()
	if err := runner.Begin(&wire.Begin{Owner: theOwner, MaxCalls: 100, MaxConcurrentCalls: 16}); err != nil {
		t.Fatal(err)
	}
}

func assign(t *testing.T, runner *dispatch.Runner, uid string, background bool) {
	t.Helper()
	a := &wire.Assignment{CallUID: uid, CallName: "call-" + uid, Decision: "sealed", Background: background}
	if err := runner.Assign("s1", a); err != nil {
		t.Fatal(err)
	}
}

// report sends the result of a session's call, and waits until the hub has it.
func (p *process) report(t *testing.T, uid string) {
	t.Helper()
	if err := p.conn.Send(&wire.Message{Result: &wire.Result{CallUID: uid, Outcome: result.Outcome{Reason: result.Completed}}}); err != nil {
		t.Fatal(err)
	}
	p.o.event(t)
}

// connectSession dials in for the session, with calls that run.
func (p *process) connectSession(t *testing.T, uids ...string) *dispatch.Runner {
	t.Helper()
	serving := &wire.Serving{Owner: theOwner, Taken: len(uids), Held: len(uids)}
	for _, uid := range uids {
		serving.Calls = append(serving.Calls, wire.Held{
			UID: uid, Name: "call-" + uid, State: wire.Running, Decision: "sealed", Background: strings.HasPrefix(uid, "background-"),
		})
	}
	return p.connectWith(t, serving)
}

func TestASessionWithoutARunnerHasNoHost(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	runner, _ := o.connectRunner(t, "a")
	session := sessionOf(runner, 1)
	// Each call that the process may have got has ended.
	session.Status.Pod = ""
	for _, s := range []*v1alpha1.ToolSession{{}, session} {
		h := FindSessionHost(o.hub, s)
		if h != nil || h.MayHave("c1", &EarlierCalls{}) || h.Room() != (Room{}) {
			t.Error("it has one")
		}
	}
}

// Rule 11: what a runner that is gone may have started.
func TestARunnerMayHaveWhatItListedAndWhatItWasGiven(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	p := o.process(t, "a")
	runner := p.connect(t)
	session := sessionOf(runner, 4)
	p.disconnect(t)
	earlier := &EarlierCalls{}
	unheard := FindSessionHost(o.hub, session)
	if unheard.HasSaidHello || !unheard.MayHave("later", earlier) {
		t.Error("before anybody knows what was there, a process that was never heard may have anything")
	}
	earlier.known.Store(&earlierCalls{uids: map[types.UID]struct{}{"listed": {}, "waits": {}}})
	if !unheard.MayHave("listed", earlier) || unheard.MayHave("later", earlier) {
		t.Error("a process that was never heard may have what was there before, and nothing else")
	}
	runner = p.connectSession(t, "listed")
	assign(t, runner, "given", false)
	check := func(what string) {
		t.Helper()
		h := FindSessionHost(o.hub, session)
		for uid, want := range map[types.UID]bool{"listed": true, "given": true, "waits": false} {
			if got := h.MayHave(uid, earlier); got != want {
				t.Errorf("%s: it may have %s: %t", what, uid, got)
			}
		}
		if !h.HasSaidHello {
			t.Errorf("%s: it wasn't heard", what)
		}
	}
	check("connected")
	p.disconnect(t)
	check("lost")
	p.connectSession(t, "listed")
	if h := FindSessionHost(o.hub, session); h.MayHave("given", earlier) {
		t.Error("it has what its hello doesn't list")
	}
}

func TestARunnerIsGivenAsManyCallsAsItsSessionMayRun(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	p := o.process(t, "a")
	runner := p.connect(t)
	session := sessionOf(runner, 2)
	room := func() Room { return FindSessionHost(o.hub, session).Room() }
	check := func(what string, want Room) {
		t.Helper()
		if got := room(); got != want {
			t.Errorf("%s: room for %+v, want %+v", what, got, want)
		}
	}
	check("before it has begun", Room{})
	begin(t, runner)
	check("idle", Room{2, wire.MaxBackgroundCalls})
	assign(t, runner, "f1", false)
	assign(t, runner, "b1", true)
	check("one of each", Room{1, wire.MaxBackgroundCalls - 1})
	assign(t, runner, "f2", false)
	check("all turns taken", Room{0, wire.MaxBackgroundCalls - 1})
	p.report(t, "f1")
	check("one has ended", Room{1, wire.MaxBackgroundCalls - 1})
	p.conn.Close()
	o.event(t)
	check("lost", Room{})
	p.connectSession(t, "f2", "background-b1")
	check("connected again", Room{1, wire.MaxBackgroundCalls - 1})
	runner = p.connectSession(t)
	for i := range wire.MaxUnacknowledged {
		check(fmt.Sprint(i, " results unrecorded"), Room{2, wire.MaxBackgroundCalls})
		uid := fmt.Sprint("r", i)
		assign(t, runner, uid, false)
		p.report(t, uid)
	}
	check("as many results as may be unacknowledged", Room{})
}

func TestOnlyTheRunnerThatWasToldOfTheSessionHasRoom(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	runner, _ := o.connectRunner(t, "a")
	session := sessionOf(runner, 1)
	has := func() bool { return FindSessionHost(o.hub, session).Room() != Room{} }
	if has() {
		t.Error("a runner that wasn't told of the session is given a call")
	}
	begin(t, runner)
	if !has() {
		t.Error("there is no room in an idle session")
	}
	session.Status.Incarnation = 2
	if has() {
		t.Error("the runner of an earlier incarnation is given a call")
	}
	session.Status.Incarnation, session.UID = 1, "another"
	if has() {
		t.Error("the runner of another session is given a call")
	}
}

func TestARunnerOfASessionIsNotOfferedToCalls(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	runner, _ := o.connectRunner(t, "a")
	r.Offer("a-uid", "t")
	if r.Claim("t", aSession("session"), "s1") != runner || r.claimedBy("s1") != runner {
		t.Fatal("a session claims no waiting runner")
	}
	if r.ReleaseOthers(aCall("session"), ""); r.claimedBy("s1") != runner {
		t.Error("a call of that name releases the session's claim")
	}
	begin(t, runner)
	pools := back(r)
	if r.Release("s1"); len(*pools) != 0 {
		t.Errorf("a runner that serves a session goes back to %q", *pools)
	}
	r.Offer("a-uid", "t")
	if r.IsOffered("a-uid") || r.Waiting("t") != 0 || claimFor(r, "t", "c1") != nil {
		t.Error("a session's runner is offered")
	}
	if !r.IsBusy("a-uid") || r.Withdraw("a-uid") {
		t.Error("it isn't busy")
	}
}

func TestClaimsOfSessionsThatAreGoneAreReleased(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	a, _ := o.connectRunner(t, "a")
	b, _ := o.connectRunner(t, "b")
	r.Offer("a-uid", "t")
	r.Offer("b-uid", "t")
	r.Claim("t", aSession("c"), "gone")
	claimFor(r, "t", "c")
	if r.claimedBy("gone") != a {
		t.Fatal("nothing is claimed")
	}
	r.ReleaseOthers(aSession("c"), "here")
	if r.IsBusy("a-uid") || r.claimedBy("c") != b {
		t.Error("the wrong claim was released")
	}
}
