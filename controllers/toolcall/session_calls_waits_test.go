package toolcall_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	callqueue "toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/testing/fixture"
)

func testWaitsForTheStart(t *testing.T) {
	b := newCallBench(t)
	c := b.add("c")
	b.Reconcile(c)
	b.expectWaiting(c, v1alpha1.ReasonSessionStarting)
	before := b.client.Writes
	b.Reconcile(c)
	if b.client.Writes != before {
		t.Error("waiting writes again and again")
	}
	b.begin()
	if !slices.Contains(b.Woken, "c") {
		t.Errorf("woken: %q", b.Woken)
	}
	b.Reconcile(c)
	b.handed(c)
	if s := b.Get(c).Status; s.Session.Sequence != revision(c) {
		t.Errorf("its sequence is %d, and it was created at %d", s.Session.Sequence, revision(c))
	}
}

// expectSequence wants a call's status to say at which version it was created, which the next operator orders it by.
func (b *callBench) expectSequence(c *v1alpha1.ToolCall) {
	b.T.Helper()
	if in := b.Get(c).Status.Session; in == nil || in.Sequence != revision(c) {
		b.T.Errorf("%s was created at %d, and says %+v", c.Name, revision(c), in)
	}
}

func testLabelledCallKeepsItsPlace(t *testing.T) {
	b := readyCallBench(t)
	b.hand("running")
	c := b.add("c")
	b.Reconcile(c)
	labelled := b.Get(c)
	labelled.Labels = map[string]string{"a": "b"}
	if err := b.World.Client.Update(t.Context(), labelled); err != nil {
		t.Fatal(err)
	}
	b.expectWaiting(c, v1alpha1.ReasonQueued)
	b.expectSequence(c)
}

// It has its place for as long as the question is asked, and its session isn't kept for it: who asks may not be allowed to use that.
func testUndecidedCallKeepsItsPlace(t *testing.T) {
	b := readyCallBench(t, func(s *v1alpha1.ToolSession) { s.Spec.IdleTimeoutSeconds = ptr.To(int32(20)) })
	who := "asker-" + b.Namespace
	b.RefuseReviews(who)
	first, second := b.addAs(who, "first", "system:masters"), b.addAs(who, "second", "system:masters")
	for _, c := range []*v1alpha1.ToolCall{first, second} {
		b.Reconcile(c)
	}
	b.Elapse(5 * time.Second)
	for _, c := range []*v1alpha1.ToolCall{second, first} {
		b.ExpectUndecided(c)
		b.expectSequence(c)
	}
	b.KeepAfter(30*time.Second, b.session)
	b.Expect(b.session, v1alpha1.SessionEnded, v1alpha1.ReasonIdleTimeout)
}

// At its turn it is asked again whether its requester may use the session, and nobody answers.
func testAcceptedCallKeepsItsSession(t *testing.T) {
	b := readyCallBench(t, func(s *v1alpha1.ToolSession) { s.Spec.IdleTimeoutSeconds = ptr.To(int32(20)) })
	who := "asker-" + b.Namespace
	running := b.hand("running")
	c := b.addAs(who, "c", "system:masters")
	b.Reconcile(c)
	b.expectWaiting(c, v1alpha1.ReasonQueued)
	answered := b.RefuseReviews(who)
	b.complete(running)
	b.Reconcile(running)
	b.Elapse(5 * time.Minute) // The last answer doesn't count any more.
	b.ExpectUndecided(c)
	b.Settle(b.session)
	b.Expect(b.session, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	answered()
	b.Elapse(30 * time.Second)
	b.Reconcile(c)
	b.handed(c)
}

func testWaitsForTheResumption(t *testing.T) {
	b := readyCallBench(t, fixture.WithWorkspace)
	b.EditSession(b.session, func(s *v1alpha1.ToolSessionSpec) { s.Suspend = true })
	c := b.add("c")
	b.Reconcile(c)
	b.expectWaiting(c, v1alpha1.ReasonSessionSuspended)
	b.Settle(b.session)
	b.await(func() bool { return b.p.Gone })
	b.Settle(b.session)
	b.Reconcile(c)
	b.expectWaiting(c, v1alpha1.ReasonSessionSuspended)
	b.EditSession(b.session, func(s *v1alpha1.ToolSessionSpec) { s.Suspend = false })
	b.Settle(b.session)
	b.Reconcile(c)
	b.expectWaiting(c, v1alpha1.ReasonSessionStarting)
	b.begin()
	b.Reconcile(c)
	b.p.Work(b.handed(c))
	b.complete(c)
	b.Reconcile(c)
	if s := b.expectCall(c, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil); s.Session.Incarnation != 2 {
		t.Errorf("it ran in incarnation %d", s.Session.Incarnation)
	}
}

func testWakesAnIdleSession(t *testing.T) {
	b := readyCallBench(t, fixture.WithWorkspace, func(s *v1alpha1.ToolSession) { s.Spec.IdleTimeoutSeconds = ptr.To(int32(60)) })
	b.KeepAfter(2*time.Minute, b.session)
	b.await(func() bool { return b.p.Gone })
	b.Settle(b.session)
	b.Expect(b.session, v1alpha1.SessionSuspended, v1alpha1.ReasonIdleTimeout)
	c := b.add("c")
	b.Reconcile(c)
	b.expectWaiting(c, v1alpha1.ReasonSessionSuspended)
	b.begin()
	b.Reconcile(c)
	b.handed(c)
}

func testSessionNotFound(t *testing.T) {
	b := readyCallBench(t)
	none := b.add("none", func(c *v1alpha1.ToolCall) { c.Spec.SessionRef.Name = "nobody" })
	other := b.add("other", func(c *v1alpha1.ToolCall) { c.Spec.SessionRef.UID = "11111111-2222-3333-4444-555555555555" })
	for _, c := range []*v1alpha1.ToolCall{none, other} {
		b.Reconcile(c)
		b.expectCall(c, v1alpha1.PhaseFailed, v1alpha1.ReasonSessionNotFound, ptr.To(true))
	}
	same := b.hand("same", func(c *v1alpha1.ToolCall) { c.Spec.SessionRef.UID = string(b.session.UID) })
	b.complete(same)
	b.Reconcile(same)
	b.expectCall(same, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
}

func testSessionEnded(t *testing.T) {
	b := readyCallBench(t)
	b.EditSession(b.session, func(s *v1alpha1.ToolSessionSpec) { s.End = true })
	early := b.add("early")
	b.Reconcile(early)
	b.expectCall(early, v1alpha1.PhaseFailed, v1alpha1.ReasonSessionEnded, ptr.To(true))
	b.Settle(b.session)
	late := b.add("late")
	b.Reconcile(late)
	b.expectCall(late, v1alpha1.PhaseFailed, v1alpha1.ReasonSessionEnded, ptr.To(true))

	deleted := readyCallBench(t)
	waits := deleted.hand("waits")
	deleted.DeleteSession(deleted.session)
	c := deleted.add("c")
	deleted.Reconcile(c)
	deleted.expectCall(c, v1alpha1.PhaseFailed, v1alpha1.ReasonSessionEnded, ptr.To(true))
	deleted.stillHolds(waits)
}

// stillHolds fails the test when a call isn't the process's any more.
func (b *callBench) stillHolds(c *v1alpha1.ToolCall) {
	b.T.Helper()
	if b.Get(c).Status.Phase.Terminal() || b.p.Find(string(c.UID)) == nil {
		b.T.Errorf("%s is %s", c.Name, b.Get(c).Status.Phase)
	}
}

func testMaxCalls(t *testing.T) {
	b := readyCallBench(t, func(s *v1alpha1.ToolSession) { s.Spec.MaxCalls = ptr.To(int32(2)) })
	for i := range 2 {
		c := b.hand(fmt.Sprint("c-", i))
		b.complete(c)
		b.Reconcile(c)
		b.expectCall(c, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
	}
	b.Settle(b.session)
	b.Expect(b.session, v1alpha1.SessionEnded, v1alpha1.ReasonMaxCalls)
	c := b.add("over")
	b.Reconcile(c)
	b.expectCall(c, v1alpha1.PhaseFailed, v1alpha1.ReasonSessionEnded, ptr.To(true))
}

func testPolicyChanges(t *testing.T) {
	b := readyCallBench(t)
	first := b.hand("first")
	b.complete(first)
	b.Reconcile(first)
	policy := &v1alpha1.ExecutionPolicy{}
	if err := b.World.Client.Get(context.Background(), client.ObjectKey{Name: "open-" + b.Namespace}, policy); err != nil {
		t.Fatal(err)
	}
	policy.Spec.Shell.Enabled = ptr.To(false)
	if err := b.World.Client.Update(context.Background(), policy); err != nil {
		t.Fatal(err)
	}
	second := b.add("second")
	b.Reconcile(second)
	s := b.expectCall(second, v1alpha1.PhaseDenied, b.Get(second).Status.Reason, nil)
	if s.Reason == "" || s.Reason == v1alpha1.ReasonSessionNotAllowed {
		t.Errorf("the reason is %q", s.Reason)
	}
	b.hearAll()
	if len(b.ledger.Starts) != 1 {
		t.Errorf("%d calls were started", len(b.ledger.Starts))
	}
	b.expectCall(first, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
}

func testEnvironmentSuspended(t *testing.T) {
	b := readyCallBench(t)
	env := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "env"}}
	b.Edit(env, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Suspend = true })
	c := b.add("c")
	b.Reconcile(c)
	b.expectWaiting(c, v1alpha1.ReasonEnvironmentSuspended)
	b.Edit(env, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Suspend = false })
	b.Reconcile(c)
	b.handed(c)
}

// Who waits behind a call that leaves the line is woken, also where nothing is written of its end, or that fails: else nobody would
// look at it again.
func testLeavingCallsWakeTheNext(t *testing.T) {
	b := readyCallBench(t)
	env := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "env"}}
	b.Edit(env, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Suspend = true })
	gone, refused, next := b.add("gone"), b.add("refused"), b.add("next")
	b.Reconcile(gone)
	b.Reconcile(refused)
	b.Reconcile(next)
	b.Edit(env, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Suspend = false })

	b.Woken = nil
	if err := b.World.Client.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	b.Reconcile(gone)
	if !slices.Contains(b.Woken, "refused") {
		t.Errorf("after the deletion of the first, woken: %q", b.Woken)
	}
	policy := &v1alpha1.ExecutionPolicy{}
	if err := b.World.Client.Get(t.Context(), client.ObjectKey{Name: "open-" + b.Namespace}, policy); err != nil {
		t.Fatal(err)
	}
	allow := func(is bool) {
		policy.Spec.Shell.Enabled = &is
		if err := b.World.Client.Update(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
	}
	allow(false)
	b.Woken = nil
	b.client.Fail = func() fixture.Failure { return fixture.Conflicts }
	for range 3 {
		// Each pass fails, so that the tries have longer and longer pauses.
		if _, err := b.Reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(refused)}); err == nil {
			t.Error("a refusal that couldn't be written is tried again at once")
		}
	}
	if !slices.Contains(b.Woken, "next") {
		t.Errorf("after a refusal that couldn't be written, woken: %q", b.Woken)
	}
	// It is taken after all: it has its place again.
	b.client.Fail = func() fixture.Failure { return fixture.Succeeds }
	allow(true)
	b.Reconcile(refused)
	b.handed(refused)
}

func testUnacknowledged(t *testing.T) {
	b := readyCallBench(t)
	var calls []*v1alpha1.ToolCall
	for i := range wire.MaxUnacknowledged {
		c := b.hand(fmt.Sprint("c-", i))
		b.complete(c)
		calls = append(calls, c)
	}
	over := b.add("over")
	b.Reconcile(over)
	b.hearAll()
	if b.p.Find(string(over.UID)) != nil {
		t.Fatalf("a call is handed over while %d results aren't acknowledged", len(b.p.Calls))
	}
	b.expectWaiting(over, v1alpha1.ReasonQueued)
	b.Reconcile(calls[0])
	b.Reconcile(over)
	b.handed(over)
}

func testPendingBudget(t *testing.T) {
	b := newCallBench(t)
	b.Pending = callqueue.PendingOptions{MaxCalls: 2}
	b.Rebuild()
	// Those of other namespaces count.
	requester := "requester-" + b.Namespace
	first, second := b.addAs(requester, "first", "system:masters"), b.addAs(requester, "second", "system:masters")
	b.Reconcile(first)
	b.Reconcile(second)
	b.expectWaiting(second, v1alpha1.ReasonSessionStarting)
	third := b.addAs(requester, "third", "system:masters")
	b.Reconcile(third)
	b.expectCall(third, v1alpha1.PhaseDenied, v1alpha1.ReasonBudgetExceeded, nil)
	b.begin()
	b.Reconcile(first)
	b.hearAll()
	fourth := b.addAs(requester, "fourth", "system:masters")
	b.Reconcile(fourth)
	b.expectWaiting(fourth, v1alpha1.ReasonQueued)
}

// addAs has a user make a call.
func (b *callBench) addAs(user, name string, groups ...string) *v1alpha1.ToolCall {
	b.T.Helper()
	c := fixture.LsCall(b.Namespace, name)
	c.Spec.SessionRef = &v1alpha1.SessionReference{Name: "s"}
	if err := b.As(user, groups...).Create(context.Background(), c); err != nil {
		b.T.Fatal(err)
	}
	fixture.Eventually(b.T, func() bool {
		return b.World.Client.Get(context.Background(), client.ObjectKeyFromObject(c), &v1alpha1.ToolCall{}) == nil
	})
	return c
}

func testRetention(t *testing.T) {
	b := readyCallBench(t)
	c := b.hand("c")
	longer := func(c *v1alpha1.ToolCall) { c.Spec.TTLSecondsAfterFinished = ptr.To(int32(900)) }
	b.complete(c)
	b.Reconcile(c)
	other := b.hand("other", longer)
	b.complete(other)
	b.Reconcile(other)
	b.Elapse(299 * time.Second)
	b.Reconcile(c)
	b.expectCall(c, v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil)
	b.Elapse(2 * time.Second)
	b.Reconcile(c)
	b.Reconcile(other)
	if !b.isGone(c) || b.isGone(other) {
		t.Errorf("after 301 s, gone: %v, and one that stays longer: %v", b.isGone(c), b.isGone(other))
	}
}

func (b *callBench) isGone(c *v1alpha1.ToolCall) bool {
	b.T.Helper()
	err := fixture.Shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(c), &v1alpha1.ToolCall{})
	if client.IgnoreNotFound(err) != nil {
		b.T.Fatal(err)
	}
	return err != nil
}

func testLastCalls(t *testing.T) {
	b := readyCallBench(t)
	var calls []*v1alpha1.ToolCall
	for i := range 202 {
		c := b.hand(fmt.Sprint("c-", i))
		b.complete(c)
		b.Reconcile(c)
		b.hearAll()
		b.Reconcile(c)
		calls = append(calls, c)
	}
	for _, c := range calls[:5] {
		b.Reconcile(c)
	}
	for i, c := range calls[:5] {
		if b.isGone(c) != (i < 2) {
			t.Errorf("call %d is gone: %v", i, b.isGone(c))
		}
	}
	waiting, due := 0, field(b.Finished.Schedule, "due")
	for _, second := range due.MapKeys() {
		waiting += due.MapIndex(second).Len()
	}
	if waiting != 200 {
		t.Errorf("%d calls are to be looked at when their time is up", waiting)
	}
}

func testSessionNotAllowed(t *testing.T) {
	b := readyCallBench(t)
	b.Grant(fixture.Group("system:authenticated"), "toolcalls", nil, "create")
	b.Grant(fixture.User("friend"), "toolsessions", []string{"s"}, "use")
	for _, tc := range []struct {
		user    string
		allowed bool
	}{{"friend", true}, {"stranger", false}} {
		c := b.addAs(tc.user, tc.user)
		b.Reconcile(c)
		if tc.allowed {
			b.handed(c)
			continue
		}
		b.expectCall(c, v1alpha1.PhaseDenied, v1alpha1.ReasonSessionNotAllowed, nil)
		if b.hearAll(); b.p.Find(string(c.UID)) != nil {
			t.Errorf("the call of %s is handed over", tc.user)
		}
	}
}

// Who may not use a session doesn't keep it from being idle.
func TestRefusedCallsDoNotKeepASessionFromBeingIdle(t *testing.T) {
	w := fixture.NewWorld(t)
	w.VouchForRequesters()
	w.Environment("env", fixture.AsDefault)
	s, _ := w.ReadySession("s", func(s *v1alpha1.ToolSession) { s.Spec.IdleTimeoutSeconds = ptr.To[int32](60) })
	w.Grant(rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "mallory"}, "toolcalls", nil, "create")
	mallory := w.As("mallory")
	for i := range 4 {
		w.Elapse(50 * time.Second)
		c := fixture.LsCall(w.Namespace, fmt.Sprint("m-", i))
		c.Spec.SessionRef = &v1alpha1.SessionReference{Name: s.Name}
		fixture.Eventually(t, func() bool { return mallory.Create(t.Context(), c) == nil })
		fixture.Eventually(t, func() bool {
			return w.Client.Get(t.Context(), client.ObjectKeyFromObject(c), &v1alpha1.ToolCall{}) == nil
		})
		w.Keep(s)
		w.Reconcile(c)
		w.Keep(s)
	}
	w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonIdleTimeout)
}
