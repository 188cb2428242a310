package toolcall_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

func atMost(n int32) func(*v1alpha1.ExecutionEnvironment) {
	return func(e *v1alpha1.ExecutionEnvironment) {
		fixture.AsDefault(e)
		e.Spec.MaxConcurrentCalls = ptr.To(n)
	}
}

func queued(call *v1alpha1.ToolCall) bool {
	c := meta.FindStatusCondition(call.Status.Conditions, v1alpha1.ConditionStarted)
	return c != nil && c.Reason == v1alpha1.ReasonQueued
}

func TestACallOverTheLimitWaitsForItsTurn(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", atMost(1))
	first, second := w.Call("first"), w.Call("second")
	w.Reconcile(first)
	w.Reconcile(second)
	got := w.Get(second)
	if !queued(got) || got.Status.Phase != v1alpha1.PhasePending || w.HasJob(second) {
		t.Fatalf("the second call: %+v", got.Status)
	}
	if !meta.IsStatusConditionTrue(got.Status.Conditions, v1alpha1.ConditionAccepted) || got.Status.Environment.Name != "env" {
		t.Errorf("what is known of it isn't said: %+v", got.Status)
	}
	message := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionStarted).Message
	if !strings.Contains(message, "at most 1") || !strings.Contains(message, "maxConcurrentCalls") {
		t.Errorf("it says %q", message)
	}
	w.Reconcile(second)
	if w.Get(second).ResourceVersion != got.ResourceVersion {
		t.Error("waiting writes again and again")
	}
	w.Clock.At = w.Clock.At.Add(3 * time.Second)
	w.FinishOne(first)
	if !slices.Contains(w.Woken, "second") {
		t.Fatalf("woken: %q", w.Woken)
	}
	w.Reconcile(second)
	now := w.Get(second)
	if !w.HasJob(second) || queued(now) || now.Status.Job == "" || now.Status.Timings.Path != v1alpha1.PathCold {
		t.Errorf("when its turn came: %+v", now.Status)
	}
	if ms := *now.Status.Timings.AcceptedMilliseconds; ms >= 3000 {
		t.Errorf("it was accepted after %d ms: its wait counts", ms)
	}
	w.FinishOne(second)
	if s := w.Get(second).Status; *s.Timings.StartedMilliseconds < 3000 {
		t.Errorf("it was started after %d ms: its wait doesn't count", *s.Timings.StartedMilliseconds)
	}
}

func TestOneCallersFloodDoesNotHoldUpAnother(t *testing.T) {
	w := fixture.NewWorld(t)
	w.WithAdmission()
	fixture.Eventually(t, func() bool {
		probe := fixture.LsCall(w.Namespace, "probe")
		err := w.Client.Create(context.Background(), probe, client.DryRunAll, client.DisableReadYourWritesConsistency)
		known, _, _ := w.Reconciler.Requesters.Vouched(context.Background(), probe)
		return err == nil && known
	})
	w.Environment("env", atMost(1))
	var flood []*v1alpha1.ToolCall
	for i := range 5 {
		call := w.CallAs("flooder", fmt.Sprintf("flood-%d", i))
		w.Reconcile(call)
		flood = append(flood, call)
	}
	other := w.CallAs("other", "other")
	w.Reconcile(other)
	w.FinishOne(flood[0])
	w.Reconcile(flood[1])
	w.Woken = nil
	w.FinishOne(flood[1])
	if !slices.Equal(w.Woken, []string{"other"}) {
		t.Errorf("after two calls of the flood the turn is %q's", w.Woken)
	}
}

func TestAnOperatorThatStartsKnowsWhatRuns(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", atMost(2))
	recorded, bare, third := w.Call("recorded"), w.Call("bare"), w.Call("third")
	w.Reconcile(recorded)
	w.Reconcile(bare)
	// Of one call the operator had no time to write more than the Job.
	now := w.Get(bare)
	now.Status = v1alpha1.ToolCallStatus{}
	if err := w.Client.Status().Update(context.Background(), now); err != nil {
		t.Fatal(err)
	}
	w.Restart()
	w.Clock.Set(w.Clock.Now().Add(time.Second))
	w.Reconcile(third)
	if w.HasJob(third) || !queued(w.Get(third)) {
		t.Error("the third call runs over the limit")
	}
	w.Reconcile(bare)
	if w.Get(bare).Status.Job == "" {
		t.Error("the call that had a Job waits for a turn")
	}
	w.FinishOne(recorded)
	w.Reconcile(third)
	if !w.HasJob(third) {
		t.Error("the third call's turn doesn't come")
	}
}

func TestWhoWaitsAndGoesMakesNoTrouble(t *testing.T) {
	for name, gone := range map[string]func(*fixture.World, *v1alpha1.ToolCall){
		"cancelled": func(w *fixture.World, call *v1alpha1.ToolCall) {
			call = w.Get(call)
			call.Spec.Cancel = true
			if err := w.Client.Update(context.Background(), call); err != nil {
				w.T.Fatal(err)
			}
			w.Reconcile(call)
			if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseCancelled || s.RetrySafe == nil || !*s.RetrySafe {
				w.T.Errorf("ended %+v", s)
			}
		},
		"deleted": func(w *fixture.World, call *v1alpha1.ToolCall) {
			if err := w.Client.Delete(context.Background(), call); err != nil {
				w.T.Fatal(err)
			}
			w.Reconcile(call)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			w.Environment("env", atMost(1))
			first, second, third := w.Call("first"), w.Call("second"), w.Call("third")
			for _, c := range []*v1alpha1.ToolCall{first, second, third} {
				w.Reconcile(c)
			}
			gone(w, second)
			w.FinishOne(first)
			if !slices.Equal(w.Woken, []string{"third"}) {
				t.Errorf("woken: %q", w.Woken)
			}
		})
	}
}

func TestAnotherLimitIsSeenByThoseWhoWait(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", atMost(1))
	first, second := w.Call("first"), w.Call("second")
	w.Reconcile(first)
	w.Reconcile(second)
	w.Judge(env)
	if len(w.Woken) != 0 {
		t.Fatalf("woken: %q", w.Woken)
	}
	w.Edit(env, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.MaxConcurrentCalls = nil })
	w.Judge(env)
	if !slices.Equal(w.Woken, []string{"second"}) {
		t.Errorf("woken: %q", w.Woken)
	}
	w.Reconcile(second)
	if !w.HasJob(second) {
		t.Error("the call still waits")
	}
}

func TestAWaitingCallIsToldThatItsEnvironmentIsGone(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", atMost(1), func(e *v1alpha1.ExecutionEnvironment) { delete(e.Annotations, v1alpha1.AnnotationDefaultEnvironment) })
	in := func(c *v1alpha1.ToolCall) { c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "env"} }
	first, second := w.Call("first", in), w.Call("second", in)
	w.Reconcile(first)
	w.Reconcile(second)
	if err := w.Client.Delete(context.Background(), env); err != nil {
		t.Fatal(err)
	}
	w.JudgeGone(env)
	w.Reconcile(second)
	if s := w.Get(second).Status; s.Reason != v1alpha1.ReasonEnvironmentNotFound || !*s.RetrySafe {
		t.Errorf("ended %+v", s)
	}
	w.FinishOne(first)
}

// The judgement of a waiting call is the one of when its turn comes.
func TestWhatMayNotRunAnyMoreWhenItsTurnComesDoesNot(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", atMost(1))
	first, second, third := w.Call("first"), w.Call("second"), w.Call("third")
	for _, c := range []*v1alpha1.ToolCall{first, second, third} {
		w.Reconcile(c)
	}
	policy := &v1alpha1.ExecutionPolicy{}
	if err := w.Client.Get(context.Background(), client.ObjectKey{Name: "open-" + w.Namespace}, policy); err != nil {
		t.Fatal(err)
	}
	policy.Spec.Shell = &v1alpha1.ShellPolicy{Enabled: ptr.To(false)}
	if err := w.Client.Update(context.Background(), policy); err != nil {
		t.Fatal(err)
	}
	w.FinishOne(first)
	w.Reconcile(second)
	if s := w.Get(second).Status; s.Phase != v1alpha1.PhaseDenied || s.Reason != v1alpha1.ReasonShellDisabled {
		t.Errorf("ended %+v", s)
	}
	if !slices.Contains(w.Woken, "third") {
		t.Errorf("a denied call keeps its turn; woken: %q", w.Woken)
	}
}

func TestAWarmCallTakesATurnToo(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(2), func(e *v1alpha1.ExecutionEnvironment) { e.Spec.MaxConcurrentCalls = ptr.To[int32](1) })
	runners := w.WarmUp(env)
	first, second := w.Call("first"), w.Call("second")
	w.Reconcile(first)
	w.Reconcile(second)
	if !queued(w.Get(second)) {
		t.Fatalf("the second call: %+v", w.Get(second).Status)
	}
	r := runners[w.Get(first).Status.Job]
	r.Receive()
	r.Report(w, first.UID, fixture.Completed)
	w.Reconcile(first)
	w.Reconcile(second)
	if s := w.Get(second).Status; s.Timings.Path != v1alpha1.PathWarm || s.Phase != v1alpha1.PhaseRunning {
		t.Errorf("when its turn came: %+v", s)
	}
}
