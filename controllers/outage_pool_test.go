package controllers_test

import (
	"testing"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
)

// failedOver is a world whose pool of two waited for hours when another operator took over. Its runners are away.
func failedOver(t *testing.T) (*world, *v1alpha1.ExecutionEnvironment, map[string]*runner) {
	t.Helper()
	w := newWorld(t)
	env := w.environment("env", warm(2))
	runners := w.warmUp(env)
	for _, r := range runners {
		w.disconnect(r)
	}
	w.outage()
	return w, env, runners
}

func TestAFailoverThrowsNoWaitingPodAwayBeforeItsRunnerCouldDialIn(t *testing.T) {
	w, env, runners := failedOver(t)
	for range 3 {
		w.clock.set(w.clock.Now().Add(4 * time.Second))
		if wake := w.fill(env).RequeueAfter; wake <= 0 || wake > 15*time.Second {
			t.Errorf("the pool is looked at again after %s", wake)
		}
	}
	for _, job := range w.waiting(env) {
		if runners[job.Name] == nil {
			t.Errorf("Job %s took the place of one that waited", job.Name)
		}
	}
	if n, problem := len(w.waiting(env)), w.problem(env); n != 2 || problem != "" {
		t.Errorf("%d pods wait, and the environment says %q", n, problem)
	}
	for _, r := range runners {
		r.connect(w, "")
	}
	w.clock.set(w.clock.Now().Add(time.Hour))
	w.fillUntilOffered(env)
	if n := w.offered(env); n != 2 {
		t.Errorf("%d runners are offered", n)
	}
}

func TestAWaitingPodWhoseRunnerStaysAwayAfterAFailoverIsReplaced(t *testing.T) {
	w, env, runners := failedOver(t)
	w.fill(env)
	w.clock.set(w.clock.Now().Add(16 * time.Second))
	w.fill(env)
	for _, job := range w.waiting(env) {
		if runners[job.Name] != nil {
			t.Errorf("Job %s is still there", job.Name)
		}
	}
	if w.problem(env) == "" {
		t.Error("the environment doesn't say that its pods were lost")
	}
	if n := len(w.waiting(env)); n != 0 {
		t.Errorf("%d pods were made without a pause", n)
	}
	w.clock.set(w.clock.Now().Add(time.Minute))
	w.fill(env)
	if n := len(w.waiting(env)); n != 2 {
		t.Errorf("after the pause %d pods wait", n)
	}
}
