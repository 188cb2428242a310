package toolcall_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/testing/fixture"
)

const secretLiteral = "hunter2-and-some-more"

func withLiteral(e *v1alpha1.ExecutionEnvironment) {
	e.Spec.Env = []v1alpha1.EnvVar{{Name: "PASSWORD", Value: secretLiteral}}
}

// Who may read calls and Jobs must not read the environments' variables there.
func TestNoObjectOfACallShowsAVariableOfItsEnvironment(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault, withLiteral)
	env := w.Environment("pool", fixture.Warm(1), withLiteral, func(e *v1alpha1.ExecutionEnvironment) { delete(e.Annotations, v1alpha1.AnnotationDefaultEnvironment) })
	w.WarmUp(env)
	cold := w.Call("cold")
	w.Reconcile(cold)
	r := w.Start(cold)
	warmly := w.Call("warm", func(c *v1alpha1.ToolCall) { c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "pool"} })
	w.Reconcile(warmly)
	w.ChangeHands(warmly)
	for _, call := range []*v1alpha1.ToolCall{cold, warmly} {
		now := w.Get(call)
		if now.Status.Runner == nil || now.Status.Runner.Decision == "" {
			t.Fatalf("%s keeps no decision: %+v", call.Name, now.Status)
		}
		for _, o := range []client.Object{now, w.JobNamed(now.Status.Job)} {
			raw, err := json.Marshal(o)
			if err != nil || strings.Contains(string(raw), secretLiteral) {
				t.Errorf("%T %s shows the value, %v", o, o.GetName(), err)
			}
		}
	}
	r.Report(w, cold.UID, fixture.Completed)
	w.Reconcile(cold)
	if s := w.Get(cold).Status; s.Runner.Decision != "" {
		t.Error("the decision stays after the end")
	}
}

// A decision counts for one call and one process. Who copies another call's, or writes one, gets nothing run.
func TestADecisionThatWasTamperedWithRunsNothing(t *testing.T) {
	for name, change := range map[string]func(own, other *v1alpha1.RunnerBinding){
		"another call's":                 func(own, other *v1alpha1.RunnerBinding) { own.Decision = other.Decision },
		"one that isn't sealed":          func(own, _ *v1alpha1.RunnerBinding) { own.Decision = `{"environment":"env","argvPrefix":["evil"]}` },
		"one that was cut":               func(own, _ *v1alpha1.RunnerBinding) { own.Decision = own.Decision[:len(own.Decision)/2] },
		"its own for another pod":        func(own, other *v1alpha1.RunnerBinding) { own.PodUID = other.PodUID },
		"another call's with its runner": func(own, other *v1alpha1.RunnerBinding) { *own = *other },
	} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			w.Environment("env", fixture.AsDefault, withLiteral)
			call, runner := w.Recorded("a")
			other, otherRunner := w.Recorded("b")
			written := w.Get(call)
			change(written.Status.Runner, w.Get(other).Status.Runner)
			if err := w.Client.Status().Update(context.Background(), written); err != nil {
				t.Fatal(err)
			}
			w.Restart()
			runner.Connect(w, "")
			otherRunner.Connect(w, "")
			asked := runner
			if written.Status.Runner.KeyHash == w.Get(other).Status.Runner.KeyHash {
				asked = otherRunner
			}
			w.Reconcile(call)
			if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseFailed || !*s.RetrySafe {
				t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
			}
			if m := asked.Receive(); m.Refuse == nil {
				t.Errorf("got %+v; want a refusal", m)
			}
		})
	}
}

// A decision with many values isn't kept in the operator's memory, cold or warm, by this operator or the next.
func TestALargeDecisionIsReadWhenItIsNeeded(t *testing.T) {
	w := fixture.NewWorld(t)
	large := func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Env = []v1alpha1.EnvVar{{Name: "LARGE", Value: fixture.LongText(32 << 10)}}
	}
	w.Environment("env", fixture.AsDefault, large)
	call := w.Call("c")
	w.Accept(call)
	job := w.Job(call)
	cached := &batchv1.Job{}
	if err := w.Client.Get(context.Background(), client.ObjectKeyFromObject(job), cached); err != nil || !jobspec.IsDecisionOmitted(cached) {
		t.Errorf("%v, the cache holds %d bytes of the decision", err, len(cached.Annotations[jobspec.AnnotationDecision]))
	}
	w.Restart()
	r := w.Runner(job, w.Pod(job))
	w.LoseTheAnswerToTheBinding(call)
	r.Conn.Close()
	seen := &v1alpha1.ToolCall{}
	fixture.Eventually(t, func() bool {
		err := w.Client.Get(context.Background(), client.ObjectKeyFromObject(call), seen)
		return err == nil && seen.Status.Runner != nil
	})
	if n := len(seen.Status.Runner.Decision); n > 100 || len(w.Get(call).Status.Runner.Decision) < 32<<10 {
		t.Errorf("the cache holds %d bytes of the decision", n)
	}
	w.Restart()
	r.Connect(w, "")
	w.Reconcile(call)
	if m := r.Receive(); m.Assign == nil || len(m.Assign.Environment.Layers) == 0 {
		t.Fatalf("got %+v; want the call", m)
	}
	r.Report(w, call.UID, fixture.Completed)
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Reason != v1alpha1.ReasonCompleted || s.Runner.Decision != "" {
		t.Errorf("ended %s/%s, with %d bytes of the decision", s.Phase, s.Reason, len(s.Runner.Decision))
	}
}
