package controllers_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

const secretLiteral = "hunter2-and-some-more"

func withLiteral(e *v1alpha1.ExecutionEnvironment) {
	e.Spec.Env = []v1alpha1.EnvVar{{Name: "PASSWORD", Value: secretLiteral}}
}

// Who may read calls and Jobs must not read the environments' variables there.
func TestNoObjectOfACallShowsAVariableOfItsEnvironment(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault, withLiteral)
	env := w.environment("pool", warm(1), withLiteral, func(e *v1alpha1.ExecutionEnvironment) { delete(e.Annotations, v1alpha1.AnnotationDefaultEnvironment) })
	w.warmUp(env)
	cold := w.call("cold")
	w.reconcile(cold)
	r := w.start(cold)
	warmly := w.call("warm", func(c *v1alpha1.ToolCall) { c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "pool"} })
	w.reconcile(warmly)
	w.changeHands(warmly)
	for _, call := range []*v1alpha1.ToolCall{cold, warmly} {
		now := w.get(call)
		if now.Status.Runner == nil || now.Status.Runner.Decision == "" {
			t.Fatalf("%s keeps no decision: %+v", call.Name, now.Status)
		}
		for _, o := range []client.Object{now, w.jobNamed(now.Status.Job)} {
			raw, err := json.Marshal(o)
			if err != nil || strings.Contains(string(raw), secretLiteral) {
				t.Errorf("%T %s shows the value, %v", o, o.GetName(), err)
			}
		}
	}
	r.report(w, cold.UID, completed)
	w.reconcile(cold)
	if s := w.get(cold).Status; s.Runner.Decision != "" {
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
			w := newWorld(t)
			w.environment("env", asDefault, withLiteral)
			call, runner := w.recorded("a")
			other, otherRunner := w.recorded("b")
			written := w.get(call)
			change(written.Status.Runner, w.get(other).Status.Runner)
			if err := w.client.Status().Update(context.Background(), written); err != nil {
				t.Fatal(err)
			}
			w.restart()
			runner.connect(w, "")
			otherRunner.connect(w, "")
			asked := runner
			if written.Status.Runner.KeyHash == w.get(other).Status.Runner.KeyHash {
				asked = otherRunner
			}
			w.reconcile(call)
			if s := w.get(call).Status; s.Phase != v1alpha1.PhaseFailed || !*s.RetrySafe {
				t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
			}
			if m := asked.receive(); m.Refuse == nil {
				t.Errorf("got %+v; want a refusal", m)
			}
		})
	}
}

// A decision with many values isn't kept in the operator's memory, cold or warm, by this operator or the next.
func TestALargeDecisionIsReadWhenItIsNeeded(t *testing.T) {
	w := newWorld(t)
	large := func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Env = []v1alpha1.EnvVar{{Name: "LARGE", Value: longText(32 << 10)}}
	}
	w.environment("env", asDefault, large)
	call := w.call("c")
	w.accept(call)
	job := w.job(call)
	cached := &batchv1.Job{}
	if err := w.client.Get(context.Background(), client.ObjectKeyFromObject(job), cached); err != nil || !jobspec.IsDecisionOmitted(cached) {
		t.Errorf("%v, the cache holds %d bytes of the decision", err, len(cached.Annotations[jobspec.AnnotationDecision]))
	}
	w.restart()
	r := w.runner(job, w.pod(job))
	w.loseTheAnswerToTheBinding(call)
	r.conn.Close()
	seen := &v1alpha1.ToolCall{}
	eventually(t, func() bool {
		err := w.client.Get(context.Background(), client.ObjectKeyFromObject(call), seen)
		return err == nil && seen.Status.Runner != nil
	})
	if n := len(seen.Status.Runner.Decision); n > 100 || len(w.get(call).Status.Runner.Decision) < 32<<10 {
		t.Errorf("the cache holds %d bytes of the decision", n)
	}
	w.restart()
	r.connect(w, "")
	w.reconcile(call)
	if m := r.receive(); m.Assign == nil || len(m.Assign.Environment.Layers) == 0 {
		t.Fatalf("got %+v; want the call", m)
	}
	r.report(w, call.UID, completed)
	w.reconcile(call)
	if s := w.get(call).Status; s.Reason != v1alpha1.ReasonCompleted || s.Runner.Decision != "" {
		t.Errorf("ended %s/%s, with %d bytes of the decision", s.Phase, s.Reason, len(s.Runner.Decision))
	}
}

// recorded makes a call whose runner is recorded, connected, and has not heard of it.
func (w *world) recorded(name string) (*v1alpha1.ToolCall, *runner) {
	w.t.Helper()
	call := w.call(name)
	w.reconcile(call)
	job := w.job(call)
	r := w.runner(job, w.pod(job))
	w.loseTheAnswerToTheBinding(call)
	return call, r
}
