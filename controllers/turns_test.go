package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/access"
)

func atMost(n int32) func(*v1alpha1.ExecutionEnvironment) {
	return func(e *v1alpha1.ExecutionEnvironment) {
		asDefault(e)
		e.Spec.MaxConcurrentCalls = ptr.To(n)
	}
}

func queued(call *v1alpha1.ToolCall) bool {
	c := meta.FindStatusCondition(call.Status.Conditions, v1alpha1.ConditionStarted)
	return c != nil && c.Reason == v1alpha1.ReasonQueued
}

func TestACallOverTheLimitWaitsForItsTurn(t *testing.T) {
	w := newWorld(t)
	w.environment("env", atMost(1))
	first, second := w.call("first"), w.call("second")
	w.reconcile(first)
	w.reconcile(second)
	got := w.get(second)
	if !queued(got) || got.Status.Phase != v1alpha1.PhasePending || w.hasJob(second) {
		t.Fatalf("the second call: %+v", got.Status)
	}
	if !meta.IsStatusConditionTrue(got.Status.Conditions, v1alpha1.ConditionAccepted) || got.Status.Environment.Name != "env" {
		t.Errorf("what is known of it isn't said: %+v", got.Status)
	}
	message := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionStarted).Message
	if !strings.Contains(message, "at most 1") || !strings.Contains(message, "maxConcurrentCalls") {
		t.Errorf("it says %q", message)
	}
	w.reconcile(second)
	if w.get(second).ResourceVersion != got.ResourceVersion {
		t.Error("waiting writes again and again")
	}
	w.clock.now = w.clock.now.Add(3 * time.Second)
	w.finishOne(first)
	if !slices.Contains(w.woken, "second") {
		t.Fatalf("woken: %q", w.woken)
	}
	w.reconcile(second)
	now := w.get(second)
	if !w.hasJob(second) || queued(now) || now.Status.Job == "" || now.Status.Timings.Path != v1alpha1.PathCold {
		t.Errorf("when its turn came: %+v", now.Status)
	}
	if ms := *now.Status.Timings.AcceptedMilliseconds; ms >= 3000 {
		t.Errorf("it was accepted after %d ms: its wait counts", ms)
	}
	w.finishOne(second)
	if s := w.get(second).Status; *s.Timings.StartedMilliseconds < 3000 {
		t.Errorf("it was started after %d ms: its wait doesn't count", *s.Timings.StartedMilliseconds)
	}
}

// finishOne runs a call with a Job to its end.
func (w *world) finishOne(call *v1alpha1.ToolCall) {
	w.t.Helper()
	r := w.start(call)
	r.report(w, call.UID, completed)
	w.reconcile(call)
	if s := w.get(call).Status; s.Phase != v1alpha1.PhaseSucceeded {
		w.t.Fatalf("%s ended %+v", call.Name, s)
	}
}

func TestOneCallersFloodDoesNotHoldUpAnother(t *testing.T) {
	w := newWorld(t)
	w.withAdmission()
	eventually(t, func() bool {
		probe := lsCall(w.namespace, "probe")
		err := w.client.Create(context.Background(), probe, client.DryRunAll, client.DisableReadYourWritesConsistency)
		known, _, _ := w.reconciler.Requesters.Vouched(context.Background(), probe)
		return err == nil && known
	})
	w.environment("env", atMost(1))
	var flood []*v1alpha1.ToolCall
	for i := range 5 {
		call := w.callAs("flooder", fmt.Sprintf("flood-%d", i))
		w.reconcile(call)
		flood = append(flood, call)
	}
	other := w.callAs("other", "other")
	w.reconcile(other)
	w.finishOne(flood[0])
	w.reconcile(flood[1])
	w.woken = nil
	w.finishOne(flood[1])
	if !slices.Equal(w.woken, []string{"other"}) {
		t.Errorf("after two calls of the flood the turn is %q's", w.woken)
	}
}

func (w *world) callAs(user, name string) *v1alpha1.ToolCall {
	w.t.Helper()
	call := &v1alpha1.ToolCall{}
	call.Namespace, call.Name = w.namespace, name
	call.Spec.Shell = &v1alpha1.ShellAction{Command: "echo hi"}
	if err := w.as(user, "system:masters").Create(context.Background(), call); err != nil {
		w.t.Fatal(err)
	}
	eventually(w.t, func() bool {
		return w.client.Get(context.Background(), client.ObjectKeyFromObject(call), &v1alpha1.ToolCall{}) == nil
	})
	return call
}

func TestAnOperatorThatStartsKnowsWhatRuns(t *testing.T) {
	w := newWorld(t)
	w.environment("env", atMost(2))
	recorded, bare, third := w.call("recorded"), w.call("bare"), w.call("third")
	w.reconcile(recorded)
	w.reconcile(bare)
	// Of one call the operator had no time to write more than the Job.
	now := w.get(bare)
	now.Status = v1alpha1.ToolCallStatus{}
	if err := w.client.Status().Update(context.Background(), now); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.clock.set(w.clock.Now().Add(time.Second))
	w.reconcile(third)
	if w.hasJob(third) || !queued(w.get(third)) {
		t.Error("the third call runs over the limit")
	}
	w.reconcile(bare)
	if w.get(bare).Status.Job == "" {
		t.Error("the call that had a Job waits for a turn")
	}
	w.finishOne(recorded)
	w.reconcile(third)
	if !w.hasJob(third) {
		t.Error("the third call's turn doesn't come")
	}
}

func TestWhoWaitsAndGoesMakesNoTrouble(t *testing.T) {
	for name, gone := range map[string]func(*world, *v1alpha1.ToolCall){
		"cancelled": func(w *world, call *v1alpha1.ToolCall) {
			call = w.get(call)
			call.Spec.Cancel = true
			if err := w.client.Update(context.Background(), call); err != nil {
				w.t.Fatal(err)
			}
			w.reconcile(call)
			if s := w.get(call).Status; s.Phase != v1alpha1.PhaseCancelled || s.RetrySafe == nil || !*s.RetrySafe {
				w.t.Errorf("ended %+v", s)
			}
		},
		"deleted": func(w *world, call *v1alpha1.ToolCall) {
			if err := w.client.Delete(context.Background(), call); err != nil {
				w.t.Fatal(err)
			}
			w.reconcile(call)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.environment("env", atMost(1))
			first, second, third := w.call("first"), w.call("second"), w.call("third")
			for _, c := range []*v1alpha1.ToolCall{first, second, third} {
				w.reconcile(c)
			}
			gone(w, second)
			w.finishOne(first)
			if !slices.Equal(w.woken, []string{"third"}) {
				t.Errorf("woken: %q", w.woken)
			}
		})
	}
}

func TestAnotherLimitIsSeenByThoseWhoWait(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", atMost(1))
	first, second := w.call("first"), w.call("second")
	w.reconcile(first)
	w.reconcile(second)
	w.judge(env)
	if len(w.woken) != 0 {
		t.Fatalf("woken: %q", w.woken)
	}
	w.edit(env, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.MaxConcurrentCalls = nil })
	w.judge(env)
	if !slices.Equal(w.woken, []string{"second"}) {
		t.Errorf("woken: %q", w.woken)
	}
	w.reconcile(second)
	if !w.hasJob(second) {
		t.Error("the call still waits")
	}
}

func (w *world) edit(env *v1alpha1.ExecutionEnvironment, change func(*v1alpha1.ExecutionEnvironment)) {
	w.t.Helper()
	now := &v1alpha1.ExecutionEnvironment{}
	if err := shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(env), now); err != nil {
		w.t.Fatal(err)
	}
	change(now)
	if err := w.client.Update(context.Background(), now); err != nil {
		w.t.Fatal(err)
	}
}

func TestAWaitingCallIsToldThatItsEnvironmentIsGone(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", atMost(1), func(e *v1alpha1.ExecutionEnvironment) { delete(e.Annotations, v1alpha1.AnnotationDefaultEnvironment) })
	in := func(c *v1alpha1.ToolCall) { c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "env"} }
	first, second := w.call("first", in), w.call("second", in)
	w.reconcile(first)
	w.reconcile(second)
	if err := w.client.Delete(context.Background(), env); err != nil {
		t.Fatal(err)
	}
	w.judgeGone(env)
	w.reconcile(second)
	if s := w.get(second).Status; s.Reason != v1alpha1.ReasonEnvironmentNotFound || !*s.RetrySafe {
		t.Errorf("ended %+v", s)
	}
	w.finishOne(first)
}

// The judgement of a waiting call is the one of when its turn comes.
func TestWhatMayNotRunAnyMoreWhenItsTurnComesDoesNot(t *testing.T) {
	w := newWorld(t)
	w.environment("env", atMost(1))
	first, second, third := w.call("first"), w.call("second"), w.call("third")
	for _, c := range []*v1alpha1.ToolCall{first, second, third} {
		w.reconcile(c)
	}
	policy := &v1alpha1.ExecutionPolicy{}
	if err := w.client.Get(context.Background(), client.ObjectKey{Name: "open-" + w.namespace}, policy); err != nil {
		t.Fatal(err)
	}
	policy.Spec.Shell = &v1alpha1.ShellPolicy{Enabled: ptr.To(false)}
	if err := w.client.Update(context.Background(), policy); err != nil {
		t.Fatal(err)
	}
	w.finishOne(first)
	w.reconcile(second)
	if s := w.get(second).Status; s.Phase != v1alpha1.PhaseDenied || s.Reason != v1alpha1.ReasonShellDisabled {
		t.Errorf("ended %+v", s)
	}
	if !slices.Contains(w.woken, "third") {
		t.Errorf("a denied call keeps its turn; woken: %q", w.woken)
	}
}

// A review of the first call that takes long doesn't let the second go before it.
func TestACallWaitsUntilItsCallersEarlierOneIsJudged(t *testing.T) {
	w := newWorld(t)
	who := w.asker()
	for tool, may := range map[string]bool{"ls": true, "cat": false} {
		w.environment(tool, judged, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.MaxConcurrentCalls = ptr.To[int32](1) })
		in := func(c *v1alpha1.ToolCall) { c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: tool} }
		first := w.asked(who, tool+"-first", in, func(c *v1alpha1.ToolCall) { c.Spec.Structured.Binary = tool })
		second := w.asked(who, tool+"-second", in)
		w.woken = nil
		w.reconciler.Reviews = access.NewReviews(&reviews{
			SubjectAccessReviewInterface: kubernetes.NewForConfigOrDie(apiServer).AuthorizationV1().SubjectAccessReviews(),
			meanwhile:                    func() { w.reconcile(second) },
		}, w.clock)
		w.reconcile(first)
		if w.hasJob(first) != may || w.hasJob(second) || !queued(w.get(second)) {
			t.Errorf("%s: the first has a Job: %t, the second: %t, %+v", tool, w.hasJob(first), w.hasJob(second), w.get(second).Status)
		}
		if woken := slices.Contains(w.woken, second.Name); woken == may {
			t.Errorf("%s: woken %q", tool, w.woken)
		}
	}
}

// reviews are the API server's, before the first of which something else happens.
type reviews struct {
	authorizationv1client.SubjectAccessReviewInterface
	meanwhile func()
}

func (r *reviews) Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, o metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	if happens := r.meanwhile; happens != nil {
		r.meanwhile = nil
		happens()
	}
	return r.SubjectAccessReviewInterface.Create(ctx, review, o)
}

func TestAWarmCallTakesATurnToo(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(2), func(e *v1alpha1.ExecutionEnvironment) { e.Spec.MaxConcurrentCalls = ptr.To[int32](1) })
	runners := w.warmUp(env)
	first, second := w.call("first"), w.call("second")
	w.reconcile(first)
	w.reconcile(second)
	if !queued(w.get(second)) {
		t.Fatalf("the second call: %+v", w.get(second).Status)
	}
	r := runners[w.get(first).Status.Job]
	r.receive()
	r.report(w, first.UID, completed)
	w.reconcile(first)
	w.reconcile(second)
	if s := w.get(second).Status; s.Timings.Path != v1alpha1.PathWarm || s.Phase != v1alpha1.PhaseRunning {
		t.Errorf("when its turn came: %+v", s)
	}
}
