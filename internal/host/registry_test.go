package host

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

func named(call string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: call}
}

func aCall(name string) Claimant { return Claimant{wire.KindCall, named(name)} }

func aSession(name string) Claimant { return Claimant{wire.KindSession, named(name)} }

// claimedBy is the runner that a call claimed.
func (r *Registry) claimedBy(callUID string) *dispatch.Runner {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.claimed(callUID)
}

// back collects the pools that runners come back to.
func back(r *Registry) *[]string {
	var pools []string
	r.Back = func(pool types.NamespacedName) { pools = append(pools, pool.String()) }
	return &pools
}

// claimFor claims for a call whose name is its UID.
func claimFor(r *Registry, template, call string) *dispatch.Runner {
	return r.Claim(template, aCall(call), call)
}

func TestAWaitingRunnerIsClaimedByOneCallAndKeptForIt(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	first, _ := o.connectRunner(t, "a")
	second, _ := o.connectRunner(t, "b")
	r.Offer("a-uid", "t")
	r.Offer("a-uid", "t")
	r.Offer("b-uid", "t")
	if n := r.Waiting("t"); n != 2 {
		t.Fatalf("%d wait", n)
	}
	if claimFor(r, "other", "x") != nil {
		t.Error("a runner of another template was given")
	}
	claimed := claimFor(r, "t", "c1")
	if claimed != first {
		t.Error("the one that was offered first was not given")
	}
	if claimFor(r, "t", "c1") != first || r.claimedBy("c1") != first {
		t.Error("the same call got another runner the second time")
	}
	if claimFor(r, "t", "c2") != second {
		t.Error("another call did not get the other runner")
	}
	if claimFor(r, "t", "c3") != nil || r.claimedBy("c3") != nil {
		t.Error("a third call got a runner of two")
	}
	if r.Withdraw("a-uid") || !r.IsBusy("a-uid") {
		t.Error("a runner that a call claimed was withdrawn")
	}
	r.Offer("a-uid", "t")
	if r.Waiting("t") != 0 || r.IsOffered("a-uid") {
		t.Error("a runner that a call claimed was offered again")
	}
	r.Release("c1")
	if r.claimedBy("c1") != nil || r.Waiting("t") != 0 {
		t.Error("the claim was not released, or the runner is offered by that")
	}
}

// What gives a released runner out again is its pool's controller, which looks whether a call records it.
func TestAReleasedRunnerWaitsAgainOnlyWhenItIsOffered(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	s, _ := o.connectRunner(t, "a")
	r.Offer("a-uid", "t")
	claimFor(r, "t", "c1")
	r.Release("c1")
	r.Release("c1")
	if claimFor(r, "t", "c2") != nil {
		t.Error("it was given before it was offered")
	}
	r.Offer("a-uid", "t")
	if claimFor(r, "t", "c2") != s {
		t.Error("it isn't given though it is offered")
	}
}

func TestAWithdrawnRunnerIsNotGiven(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	o.connectRunner(t, "a")
	r.Offer("a-uid", "t")
	first, again := r.Withdraw("a-uid"), r.Withdraw("a-uid")
	if !first || !again || !r.Withdraw("unknown") {
		t.Error("a waiting runner can't be withdrawn")
	}
	if claimFor(r, "t", "c1") != nil || r.IsOffered("a-uid") || r.Waiting("t") != 0 {
		t.Error("it was given all the same")
	}
}

// The connection of a refused runner ends a moment later.
func TestARefusedRunnerIsNotGiven(t *testing.T) {
	t.Parallel()
	s, _ := startOperator(t).connectRunner(t, "a")
	r := NewRegistry(runners{"a-uid": s})
	r.Offer("a-uid", "t")
	s.Refuse("it is in the way")
	if claimFor(r, "t", "c1") != nil || r.IsOffered("a-uid") || r.Waiting("t") != 0 {
		t.Error("it was given all the same")
	}
}

func TestOnlyARunnerThatIsConnectedAndHasNoCallIsOffered(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	r.Offer("unknown", "t")
	has := o.process(t, "a")
	has.connectForCall(t, "c1")
	r.Offer("a-uid", "t")
	if r.Waiting("t") != 0 || r.IsOffered("a-uid") || r.IsOffered("unknown") || claimFor(r, "t", "c2") != nil {
		t.Error("a runner is offered that isn't there, or that has a call")
	}
	if r.Withdraw("a-uid") || !r.IsBusy("a-uid") || r.IsBusy("unknown") {
		t.Error("a runner with a call isn't busy, or one that isn't there is")
	}
}

func TestARunnerThatGotACallIsNotClaimed(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	s, _ := o.connectRunner(t, "a")
	r.Offer("a-uid", "t")
	if err := s.Begin(wire.BeginCall("c1", "call")); err != nil {
		t.Fatal(err)
	}
	if r.Waiting("t") != 0 || r.IsOffered("a-uid") || claimFor(r, "t", "c2") != nil {
		t.Error("another call can claim it")
	}
}

// The write that records a runner may fail after the runner took the call, as far as the operator knows.
func TestAClaimHoldsWhileItsRunnerTakesTheCall(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	s, _ := o.connectRunner(t, "a")
	r.Offer("a-uid", "t")
	claimFor(r, "t", "c1")
	if err := s.Begin(wire.BeginCall("c1", "call")); err != nil {
		t.Fatal(err)
	}
	if r.claimedBy("c1") != s || claimFor(r, "t", "c1") != s || claimFor(r, "t", "c2") != nil {
		t.Error("the claim is lost, or another call has it")
	}
}

func TestARunnerThatWentIsNotGiven(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	_, gone := o.connectRunner(t, "a")
	stays, _ := o.connectRunner(t, "b")
	r.Offer("a-uid", "t")
	r.Offer("b-uid", "t")
	gone.disconnect(t)
	if r.Waiting("t") != 1 || r.IsOffered("a-uid") || r.IsBusy("a-uid") {
		t.Error("a runner that went is still counted")
	}
	if claimFor(r, "t", "c1") != stays || claimFor(r, "t", "c2") != nil {
		t.Error("a runner that went was given, or the other one wasn't")
	}
}

func TestAnOfferOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	_, p := o.connectRunner(t, "a")
	r.Offer("a-uid", "t")
	p.disconnect(t)
	next := p.connect(t)
	if r.Waiting("t") != 1 || claimFor(r, "t", "c1") != next {
		t.Error("a runner that connected again isn't offered any more")
	}
}

func TestAClaimFollowsTheRunnerToItsNextConnection(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	_, p := o.connectRunner(t, "a")
	r.Offer("a-uid", "t")
	claimFor(r, "t", "c1")
	next := p.connect(t)
	if r.claimedBy("c1") != next || claimFor(r, "t", "c1") != next {
		t.Error("the claim did not follow")
	}
}

// Until the call looks again, nobody knows whether it still wants the runner: it stays the call's.
func TestAClaimIsKeptForACallThatHasNotNoticedTheDisconnection(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	_, p := o.connectRunner(t, "a")
	r.Offer("a-uid", "t")
	claimFor(r, "t", "c1")
	p.disconnect(t)
	next := p.connect(t)
	r.Offer("a-uid", "t")
	if claimFor(r, "t", "c2") != nil || !r.IsBusy("a-uid") {
		t.Error("another call got it meanwhile")
	}
	if r.claimedBy("c1") != next {
		t.Error("the call lost it")
	}
}

func TestAClaimEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	_, p := o.connectRunner(t, "a")
	r.Offer("a-uid", "t")
	claimFor(r, "t", "c1")
	p.disconnect(t)
	if r.claimedBy("c1") != nil || r.IsBusy("a-uid") {
		t.Error("a runner that isn't there is claimed")
	}
	p.connect(t)
	if r.claimedBy("c1") != nil {
		t.Error("the claim came back")
	}
	r.Offer("a-uid", "t")
	if claimFor(r, "t", "c2") == nil {
		t.Error("no other call gets the runner")
	}
}

// A claim is on a process, not on its Job.
func TestAnotherProcessOfTheJobDoesNotInheritTheClaim(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	_, p := o.connectRunner(t, "a")
	r.Offer("a-uid", "t")
	claimFor(r, "t", "c1")
	p.disconnect(t)
	o.connectRunner(t, "a")
	if r.claimedBy("c1") != nil || claimFor(r, "t", "c1") != nil {
		t.Error("another process has the claim of the first")
	}
	if r.IsBusy("a-uid") {
		t.Error("the other process is taken for claimed")
	}
}

func TestTemplatesAreOfferedApart(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	a, _ := o.connectRunner(t, "a")
	b, _ := o.connectRunner(t, "b")
	r.Offer("a-uid", "one")
	r.Offer("b-uid", "two")
	r.Offer("a-uid", "two")
	if r.Waiting("one") != 1 || r.Waiting("two") != 1 {
		t.Errorf("%d and %d wait", r.Waiting("one"), r.Waiting("two"))
	}
	if claimFor(r, "two", "c1") != b || claimFor(r, "two", "c2") != nil || claimFor(r, "one", "c2") != a {
		t.Error("a runner of another template was given")
	}
}

// The environment's image may have changed between two tries of the same call.
func TestAClaimOnAnOutdatedPodIsGivenUp(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	_, p := o.connectRunner(t, "a")
	fresh, _ := o.connectRunner(t, "b")
	r.Offer("a-uid", "old")
	claimFor(r, "old", "c1")
	r.Offer("b-uid", "new")
	if claimFor(r, "new", "c1") != fresh {
		t.Error("the call did not get a runner of the new template")
	}
	if m, err := p.conn.Receive(); err != nil || m.Refuse == nil {
		t.Errorf("the outdated runner got %+v, %v; want a refusal", m, err)
	}
}

func TestClaimsOfCallsThatAreGoneAreReleased(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	r := NewRegistry(o.hub)
	o.connectRunner(t, "a")
	stays, _ := o.connectRunner(t, "b")
	r.Offer("a-uid", "t")
	r.Offer("b-uid", "t")
	r.Claim("t", aCall("c"), "gone")
	r.Claim("t", aCall("c"), "stays")
	pools := back(r)
	r.ReleaseOthers(aCall("c"), "stays")
	if r.IsBusy("a-uid") || r.claimedBy("stays") != stays || len(*pools) != 1 {
		t.Errorf("the wrong claim was released; looked at are %q", *pools)
	}
	r.ReleaseOthers(aCall("other"), "")
	if r.claimedBy("stays") != stays {
		t.Error("the claim of another name was released")
	}
	r.ReleaseOthers(aCall("c"), "")
	if r.claimedBy("stays") != nil || len(*pools) != 2 {
		t.Errorf("a claim is left; looked at are %q", *pools)
	}
}
