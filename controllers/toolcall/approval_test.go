package toolcall_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/approval"
	"toolcall.dev/operator/internal/testing/fixture"
)

const approve, deny = v1alpha1.DecisionApprove, v1alpha1.DecisionDeny

// approvals is a world whose calls people have to approve.
type approvals struct {
	*fixture.World
	env *v1alpha1.ExecutionEnvironment
	// alice makes calls, bob decides about them.
	alice, bob client.Client
}

func newApprovals(t *testing.T, minimum int32, change ...func(*v1alpha1.ExecutionEnvironment)) *approvals {
	w := fixture.NewWorld(t)
	w.NeedsApproval(minimum)
	env := w.Environment("env", append([]func(*v1alpha1.ExecutionEnvironment){fixture.AsDefault}, change...)...)
	w.Grant(fixture.User("alice"), "toolcalls", nil, "create")
	return &approvals{World: w, env: env, alice: w.As("alice"), bob: w.Approver("bob")}
}

// ask creates a call of alice, and has people asked about it.
func (a *approvals) ask(name string) *v1alpha1.ToolCall {
	a.T.Helper()
	call := &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: name}, Spec: v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "echo hi"}},
	}
	// Her right is there in a moment.
	fixture.Eventually(a.T, func() bool { return a.alice.Create(context.Background(), call) == nil })
	fixture.Eventually(a.T, func() bool { return a.Client.Get(context.Background(), client.ObjectKeyFromObject(call), call) == nil })
	a.Reconcile(call)
	a.expectAsked(call)
	return call
}

func (a *approvals) expectAsked(call *v1alpha1.ToolCall) *v1alpha1.ApprovalStatus {
	a.T.Helper()
	s := a.Get(call).Status
	if s.Phase != v1alpha1.PhasePending || s.Reason != v1alpha1.ReasonAwaitingApproval || fixture.Condition(&v1alpha1.ToolCall{Status: s}, v1alpha1.ConditionApproved) != "Unknown" {
		a.T.Fatalf("the call is %s/%s: %s, %+v", s.Phase, s.Reason, s.Message, s.Conditions)
	}
	if s.Approval == nil || approval.Digest(s.Approval.Summary) != s.Approval.Digest {
		a.T.Fatalf("it asks for %+v", s.Approval)
	}
	if n := a.JobCount(); n != 0 {
		a.T.Fatalf("%d Jobs are there while the call waits", n)
	}
	return s.Approval
}

// expect looks at a decision and its outcome.
func (a *approvals) expect(d *v1alpha1.ToolCallApproval, phase v1alpha1.ApprovalPhase, reason string) {
	a.T.Helper()
	now := a.JudgeDecision(d)
	if now == nil {
		a.T.Fatalf("the decision is gone, and should be %s/%s", phase, reason)
	}
	c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionAccepted)
	if now.Status.Phase != phase || c == nil || c.Reason != reason {
		a.T.Errorf("the decision is %s, %+v; want %s/%s", now.Status.Phase, c, phase, reason)
	}
}

func (a *approvals) expectDenied(call *v1alpha1.ToolCall, reason string, texts ...string) {
	a.T.Helper()
	now := a.Get(call)
	if now.Status.Phase != v1alpha1.PhaseDenied || now.Status.Reason != reason || fixture.Condition(now, v1alpha1.ConditionApproved) != "False" || a.HasJob(call) {
		a.T.Fatalf("the call is %s/%s: %s", now.Status.Phase, now.Status.Reason, now.Status.Message)
	}
	for _, text := range texts {
		if !strings.Contains(now.Status.Message, text) {
			a.T.Errorf("the message lacks %q: %s", text, now.Status.Message)
		}
	}
}

// Admission says who made the calls, and who decides.
func TestApproval(t *testing.T) {
	fixture.NewWorld(t).VouchForRequesters()
	fixture.WithApprovers(t)
	for name, test := range map[string]func(*testing.T){
		"an approved call runs once":               testApprovedCall,
		"one pass starts a call in a waiting pod":  testStartInTheSamePass,
		"what would happen changed meanwhile":      testChangeBeforeTheCount,
		"two people have to approve":               testTwoApprovers,
		"a denial ends the call":                   testDenial,
		"nobody answers":                           testExpiry,
		"one of two answers":                       testExpiryAfterOne,
		"the write of an expiry fails once":        testFailedWriteOfAnExpiry,
		"decisions that don't count":               testRejected,
		"an approval and a denial at once":         testRace,
		"the policy changes after the approval":    testChangedPolicy,
		"the policy needs no approval any more":    testNoLongerNeeded,
		"a waiting call has no place and no pod":   testNoPlace,
		"a cancel":                                 testCancelWhileAsked,
		"a decision goes with its call":            testCountedDecisionIsPartOfItsCall,
		"a decision about a call that is gone":     testUncountedDecisionOfAGoneCall,
		"the operator is restarted before a start": testApprovalStories,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // They mostly wait.
			test(t)
		})
	}
}

func TestApprovalInSessions(t *testing.T) {
	fixture.NewWorld(t).VouchForRequesters()
	fixture.WithApprovers(t)
	t.Run("a call of a session", testApprovalInSession)
	t.Run("a session that ends", testApprovalInEndedSession)
	t.Run("the write of an expiry fails once", testFailedWriteOfAnExpiryInSession)
}

func testApprovedCall(t *testing.T) {
	a := newApprovals(t, 1)
	call := a.ask("c")
	request := a.expectAsked(call)
	if !slices.Equal(request.Causes, []string{"people"}) || !slices.Equal(request.Approvers, []string{"the team"}) || request.Needed != 1 ||
		request.ExpiresAt.Sub(request.RequestedAt.Time) != 15*time.Minute || !strings.Contains(request.Summary, "echo hi") {
		t.Errorf("asked for %+v", request)
	}
	before := a.Get(call).ResourceVersion
	if wake := a.Reconcile(call).RequeueAfter; wake <= 14*time.Minute || a.Get(call).ResourceVersion != before {
		t.Errorf("it is looked at again after %s, or written", wake)
	}
	d := a.Decide(a.bob, call, approve)
	a.Reconcile(call)
	now := a.Get(call)
	if fixture.Condition(now, v1alpha1.ConditionApproved) != "True" || len(now.Status.Approval.ApprovedBy) != 1 || now.Status.Approval.ApprovedBy[0].Username != "bob" {
		t.Fatalf("%+v, %+v", now.Status.Approval, now.Status.Conditions)
	}
	a.DrainEvents()
	a.expect(d, v1alpha1.ApprovalAccepted, v1alpha1.ReasonDecisionCounts)
	if event := fixture.Next(t, a.Events.Events); event != `Normal Approved "bob" approved the call` {
		t.Errorf("the Event of the approval: %q", event)
	}
	a.Reconcile(call)
	runner := a.Start(call)
	late := a.Decide(a.Approver("carol"), call, deny)
	a.expect(late, v1alpha1.ApprovalRejected, v1alpha1.ReasonAlreadyDecided)
	runner.Report(a.World, call.UID, fixture.Completed)
	a.Reconcile(call)
	if s := a.Get(call).Status; s.Phase != v1alpha1.PhaseSucceeded || s.Approval == nil || s.Approval.Digest != request.Digest {
		t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
}

// warmApprovals is a world with a waiting pod, and a call that people are asked about.
func warmApprovals(t *testing.T) (*approvals, *fixture.Runner, *v1alpha1.ToolCall) {
	a := newApprovals(t, 1, fixture.Warm(1))
	runner := fixture.Only(a.WarmUp(a.env))
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: "c"}, Spec: v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "echo hi"}}}
	fixture.Eventually(t, func() bool { return a.alice.Create(context.Background(), call) == nil })
	fixture.Eventually(t, func() bool { return a.Client.Get(context.Background(), client.ObjectKeyFromObject(call), call) == nil })
	a.Reconcile(call)
	if now := a.Get(call); !now.AwaitsApproval() || a.Hosts.IsBusy(runner.Config.Hello.JobUID) {
		t.Fatalf("the call is %s/%s, or has a pod", now.Status.Phase, now.Status.Reason)
	}
	return a, runner, call
}

// The write that records the runner says who approved the call.
func testStartInTheSamePass(t *testing.T) {
	a, runner, call := warmApprovals(t)
	a.Decide(a.bob, call, approve)
	a.Reconcile(call)
	if m := runner.Receive(); m.Assign == nil || m.Assign.CallUID != string(call.UID) {
		t.Fatalf("the waiting pod got %+v", m)
	}
	s := a.Get(call).Status
	if s.Phase != v1alpha1.PhaseRunning || s.Runner == nil || len(s.Approval.ApprovedBy) != 1 || !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionApproved) {
		t.Errorf("the call is %s/%s, approved by %+v", s.Phase, s.Reason, s.Approval.ApprovedBy)
	}
}

// The call is decided about again in the pass that counts the approval.
func testChangeBeforeTheCount(t *testing.T) {
	a, runner, call := warmApprovals(t)
	before := a.Get(call).Status.Approval.Digest
	d := a.Decide(a.bob, call, approve)
	a.Elapse(time.Second)
	a.editPolicy(func(p *v1alpha1.ExecutionPolicySpec) { p.Approvals[0].Approvers = nil })
	a.Reconcile(call)
	now := a.Get(call)
	if !now.AwaitsApproval() || now.Status.Approval.Digest == before || len(now.Status.Approval.ApprovedBy) != 0 || a.Hosts.IsBusy(runner.Config.Hello.JobUID) {
		t.Errorf("the call is %s/%s: %+v", now.Status.Phase, now.Status.Reason, now.Status.Approval)
	}
	a.expect(d, v1alpha1.ApprovalRejected, v1alpha1.ReasonWrongDigest)
}

func testTwoApprovers(t *testing.T) {
	a := newApprovals(t, 2)
	call := a.ask("c")
	first := a.Decide(a.bob, call, approve)
	a.Reconcile(call)
	a.expectAsked(call)
	a.expect(first, v1alpha1.ApprovalAccepted, v1alpha1.ReasonDecisionCounts)
	again := a.Decide(a.bob, call, approve)
	a.Reconcile(call)
	a.expectAsked(call)
	a.expect(again, v1alpha1.ApprovalRejected, v1alpha1.ReasonDuplicateDecision)
	// What was counted counts, also when the object is gone.
	if err := a.Client.Delete(context.Background(), first); err != nil {
		t.Fatal(err)
	}
	a.Decide(a.Approver("carol"), call, approve)
	a.Reconcile(call)
	a.Reconcile(call)
	a.Start(call)
}

func testDenial(t *testing.T) {
	a := newApprovals(t, 1)
	call := a.ask("c")
	d := a.Decide(a.bob, call, deny, func(d *v1alpha1.ToolCallApproval) { d.Spec.Note = "use the other branch" })
	a.Reconcile(call)
	a.expectDenied(call, v1alpha1.ReasonApprovalDenied, `"bob" denied the call: use the other branch`)
	a.expect(d, v1alpha1.ApprovalAccepted, v1alpha1.ReasonDecisionCounts)
	a.expect(a.Decide(a.Approver("carol"), call, approve), v1alpha1.ApprovalRejected, v1alpha1.ReasonAlreadyDecided)
	a.Reconcile(call)
	a.expectDenied(call, v1alpha1.ReasonApprovalDenied)
}

// undecided is a client whose cache shows no decision yet.
type undecided struct{ client.Client }

func (u undecided) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, is := list.(*v1alpha1.ToolCallApprovalList); is {
		return nil
	}
	return u.Client.List(ctx, list, opts...)
}

func testExpiry(t *testing.T) {
	a := newApprovals(t, 1)
	a.Use = undecided{a.Client}
	a.Rebuild()
	call := a.ask("c")
	inTime := a.ask("in-time")
	a.Decide(a.bob, inTime, approve)
	a.Elapse(15 * time.Minute)
	a.Reconcile(call)
	a.expectDenied(call, v1alpha1.ReasonApprovalExpired, "0 of 1 needed approvals came within 15m0s")
	a.expect(a.Decide(a.bob, call, approve), v1alpha1.ApprovalRejected, v1alpha1.ReasonCallEnded)
	a.Reconcile(inTime)
	if now := a.Get(inTime); fixture.Condition(now, v1alpha1.ConditionApproved) != "True" {
		t.Errorf("a decision in time that is counted late: %s/%s: %s", now.Status.Phase, now.Status.Reason, now.Status.Message)
	}
}

// One of two approvals came in time, and was counted when the time was up.
func testExpiryAfterOne(t *testing.T) {
	a := newApprovals(t, 2)
	call := a.ask("c")
	d := a.Decide(a.bob, call, approve)
	a.Elapse(15 * time.Minute)
	a.Reconcile(call)
	a.expectDenied(call, v1alpha1.ReasonApprovalExpired, "1 of 2 needed approvals came within 15m0s")
	a.expect(d, v1alpha1.ApprovalAccepted, v1alpha1.ReasonDecisionCounts)
}

func testFailedWriteOfAnExpiry(t *testing.T) {
	a := newApprovals(t, 1)
	for i, how := range []fixture.Failure{fixture.Conflicts, fixture.TimesOut, fixture.AnswerIsLost} {
		call := a.ask(fmt.Sprint("c-", i))
		a.Elapse(15 * time.Minute)
		if a.FailingPass(call, how) == nil {
			t.Fatal("the write did not fail")
		}
		fixture.Eventually(t, func() bool { return a.PassError(call) == nil })
		a.expectDenied(call, v1alpha1.ReasonApprovalExpired, "0 of 1 needed approvals came within 15m0s")
	}
}

// The call has lost its place in the line by then.
func testFailedWriteOfAnExpiryInSession(t *testing.T) {
	b := readyCallBench(t)
	b.NeedsApproval(1)
	c := b.add("c")
	b.Reconcile(c)
	b.Elapse(15 * time.Minute)
	if b.FailingPass(c, fixture.TimesOut) == nil || !b.Get(c).AwaitsApproval() {
		t.Fatalf("the write did not fail: %+v", b.Get(c).Status)
	}
	b.Reconcile(c)
	if s := b.Get(c).Status; s.Phase != v1alpha1.PhaseDenied || s.Reason != v1alpha1.ReasonApprovalExpired {
		t.Errorf("the call is %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
}

func testRejected(t *testing.T) {
	a := newApprovals(t, 1)
	call, other := a.ask("c"), a.ask("other")
	alice := a.Approver("alice")
	a.expect(a.Decide(alice, call, approve), v1alpha1.ApprovalRejected, v1alpha1.ReasonOwnCall)
	replayed := a.Decide(a.bob, call, approve, func(d *v1alpha1.ToolCallApproval) { d.Spec.Digest = a.Get(other).Status.Approval.Digest })
	a.expect(replayed, v1alpha1.ApprovalRejected, v1alpha1.ReasonWrongDigest)
	// One that is for another call of the name belongs to no call.
	if d := a.JudgeDecision(a.Decide(a.bob, call, approve, func(d *v1alpha1.ToolCallApproval) { d.Spec.CallRef.UID = string(other.UID) })); d != nil {
		t.Errorf("the decision is %+v", d.Status)
	}
	forged := a.Decide(alice, call, approve, func(d *v1alpha1.ToolCallApproval) { d.Spec.Approver = &v1alpha1.Requester{Username: "bob"} })
	if forged.Spec.Approver.Username != "alice" {
		t.Errorf("admission takes %q for the approver", forged.Spec.Approver.Username)
	}
	a.expect(forged, v1alpha1.ApprovalRejected, v1alpha1.ReasonOwnCall)
	if err := a.As("mallory").Create(context.Background(), fixture.Decision(a.Namespace, a.Get(call), approve)); err == nil {
		t.Error("somebody decides without any right")
	}
	a.Grant(fixture.User("mallory"), "toolcallapprovals", nil, "create")
	fixture.Eventually(t, func() bool {
		err := a.As("mallory").Create(context.Background(), fixture.Decision(a.Namespace, a.Get(call), approve))
		return err != nil && strings.Contains(err.Error(), `have the verb "approve"`)
	})
	a.Reconcile(call)
	a.expectAsked(call)
	// One's own denial counts.
	a.Decide(alice, call, deny)
	a.Reconcile(call)
	a.expectDenied(call, v1alpha1.ReasonApprovalDenied)
}

func testRace(t *testing.T) {
	for i := range 4 {
		a := newApprovals(t, 1)
		call := a.ask("c")
		carol := a.Approver("carol")
		decisions := map[bool]func(){true: func() { a.Decide(a.bob, call, approve) }, false: func() { a.Decide(carol, call, deny) }}
		decisions[i%2 == 0]()
		decisions[i%2 != 0]()
		a.Reconcile(call)
		a.expectDenied(call, v1alpha1.ReasonApprovalDenied)
	}
}

// editPolicy changes the world's policy.
func (a *approvals) editPolicy(change func(*v1alpha1.ExecutionPolicySpec)) {
	a.T.Helper()
	policy := &v1alpha1.ExecutionPolicy{}
	if err := a.Client.Get(context.Background(), client.ObjectKey{Name: a.OpenPolicyOnce()}, policy); err != nil {
		a.T.Fatal(err)
	}
	change(&policy.Spec)
	if err := a.Client.Update(context.Background(), policy); err != nil {
		a.T.Fatal(err)
	}
}

func testChangedPolicy(t *testing.T) {
	a := newApprovals(t, 1)
	call := a.ask("c")
	first := a.Get(call).Status.Approval
	a.Decide(a.bob, call, approve)
	a.Reconcile(call)
	a.Elapse(time.Second)
	a.editPolicy(func(p *v1alpha1.ExecutionPolicySpec) { p.Approvals[0].Approvers = nil })
	a.Reconcile(call)
	if second := a.expectAsked(call); second.Digest == first.Digest || len(second.ApprovedBy) != 0 {
		t.Fatalf("asked for %+v", second)
	}
	a.Reconcile(call)
	a.expectAsked(call)
	replayed := a.Decide(a.bob, call, approve, func(d *v1alpha1.ToolCallApproval) { d.Spec.Digest = first.Digest })
	a.Reconcile(call)
	a.expectAsked(call)
	a.expect(replayed, v1alpha1.ApprovalRejected, v1alpha1.ReasonWrongDigest)
	a.Decide(a.bob, call, approve)
	a.Reconcile(call)
	a.Reconcile(call)
	a.Start(call)
}

func testNoLongerNeeded(t *testing.T) {
	a := newApprovals(t, 1)
	call := a.ask("c")
	a.Decide(a.bob, call, approve)
	a.Reconcile(call)
	a.editPolicy(func(p *v1alpha1.ExecutionPolicySpec) { p.Approvals = nil })
	a.Reconcile(call)
	a.Start(call)
	if now := a.Get(call); now.Status.Approval != nil || fixture.Condition(now, v1alpha1.ConditionApproved) != "absent" {
		t.Errorf("%+v", now.Status.Approval)
	}
	a.expect(a.Decide(a.bob, call, approve), v1alpha1.ApprovalRejected, v1alpha1.ReasonApprovalNotNeeded)
}

func testNoPlace(t *testing.T) {
	a := newApprovals(t, 1, func(e *v1alpha1.ExecutionEnvironment) { one := int32(1); e.Spec.MaxConcurrentCalls = &one })
	waits := a.ask("waits")
	next := a.ask("next")
	a.Decide(a.bob, next, approve)
	a.Reconcile(next)
	a.Reconcile(next)
	a.Start(next)
	// An approved call takes its place as any call does.
	a.Decide(a.bob, waits, approve)
	a.Reconcile(waits)
	a.Reconcile(waits)
	if s := a.Get(waits).Status; s.Reason != v1alpha1.ReasonQueued || a.HasJob(waits) {
		t.Errorf("the call is %s/%s", s.Phase, s.Reason)
	}
}

func testApprovalInSession(t *testing.T) {
	b := readyCallBench(t)
	b.NeedsApproval(1)
	bob := b.Approver("bob")
	c, behind := b.add("c"), b.add("behind")
	b.Reconcile(c)
	b.Reconcile(behind)
	if s := b.Get(c).Status; s.Reason != v1alpha1.ReasonAwaitingApproval || s.Approval == nil {
		t.Fatalf("the call is %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
	b.Clock.At = b.Clock.At.Add(2 * time.Second)
	b.Reconcile(behind)
	b.Restart()
	b.p.Connect()
	b.Reconcile(c)
	b.Decide(bob, c, approve)
	b.Reconcile(c)
	b.p.Work(b.handed(c))
	b.complete(c)
	b.Reconcile(c)
	if s := b.Get(c).Status; s.Phase != v1alpha1.PhaseSucceeded || s.Approval == nil || len(s.Approval.ApprovedBy) != 1 {
		t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
}

func testApprovalInEndedSession(t *testing.T) {
	b := readyCallBench(t)
	b.NeedsApproval(1)
	c := b.add("c")
	b.Reconcile(c)
	b.EditSession(b.session, func(s *v1alpha1.ToolSessionSpec) { s.End = true })
	b.Reconcile(c)
	if s := b.Get(c).Status; s.Reason != v1alpha1.ReasonSessionEnded || fixture.Condition(b.Get(c), v1alpha1.ConditionApproved) != "False" {
		t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
}

func testCancelWhileAsked(t *testing.T) {
	a := newApprovals(t, 1)
	call := a.ask("c")
	now := a.Get(call)
	now.Spec.Cancel = true
	if err := a.Client.Update(context.Background(), now); err != nil {
		t.Fatal(err)
	}
	d := a.Decide(a.bob, call, approve)
	a.Reconcile(call)
	if s := a.Get(call).Status; s.Phase != v1alpha1.PhaseCancelled {
		t.Errorf("ended %s/%s", s.Phase, s.Reason)
	}
	a.expect(d, v1alpha1.ApprovalRejected, v1alpha1.ReasonCallEnded)
}

func testCountedDecisionIsPartOfItsCall(t *testing.T) {
	a := newApprovals(t, 1)
	call := a.ask("c")
	d := a.JudgeDecision(a.Decide(a.bob, call, approve))
	if d == nil || len(d.OwnerReferences) != 0 || d.Status.Phase != "" {
		t.Fatalf("a decision that nobody counted yet is %+v", d)
	}
	a.Reconcile(call)
	if d = a.JudgeDecision(d); d == nil || len(d.OwnerReferences) != 1 || d.OwnerReferences[0].UID != call.UID {
		t.Fatalf("the decision is %+v, and should be part of its call", d)
	}
}

// Nobody counted the decision before the call was deleted.
func testUncountedDecisionOfAGoneCall(t *testing.T) {
	a := newApprovals(t, 1)
	call := a.ask("c")
	d := a.Decide(a.bob, call, approve)
	if err := a.Client.Delete(context.Background(), call); err != nil {
		t.Fatal(err)
	}
	if left := a.JudgeDecision(d); left != nil {
		t.Errorf("it is there: %+v", left)
	}
}

// Whatever the order of events, restarts and failing writes: the call starts once, and not before it is approved.
func testApprovalStories(t *testing.T) {
	for seed := range fixture.Seeds(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s := newStory(t, seed, int32(seed%2)*2)
			s.NeedsApproval(1)
			bob := s.Approver("bob")
			s.tell(15)
			if n := len(s.starts()); n != 0 {
				t.Fatalf("started %d times before anybody approved", n)
			}
			for range 100 {
				if s.Get(s.call).Status.Approval != nil {
					break
				}
				s.pass()
			}
			if now := s.Get(s.call).Status; now.Approval == nil {
				t.Fatalf("nobody is asked: the call is %s/%s: %s", now.Phase, now.Reason, now.Message)
			}
			s.Decide(bob, s.call, approve)
			s.tell(60)
			s.rest()
			s.check()
		})
	}
}
