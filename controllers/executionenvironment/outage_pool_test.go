package executionenvironment_test

import (
	"testing"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

// failedOver is a world whose pool of two waited for hours when another operator took over. Its runners are away.
func failedOver(t *testing.T) (*fixture.World, *v1alpha1.ExecutionEnvironment, map[string]*fixture.Runner) {
	t.Helper()
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(2))
	runners := w.WarmUp(env)
	for _, r := range runners {
		w.Disconnect(r)
	}
	w.Outage()
	return w, env, runners
}

func TestAFailoverThrowsNoWaitingPodAwayBeforeItsRunnerCouldDialIn(t *testing.T) {
	w, env, runners := failedOver(t)
	for range 3 {
		w.Clock.Set(w.Clock.Now().Add(4 * time.Second))
		if wake := w.Fill(env).RequeueAfter; wake <= 0 || wake > 15*time.Second {
			t.Errorf("the pool is looked at again after %s", wake)
		}
	}
	for _, job := range w.Waiting(env) {
		if runners[job.Name] == nil {
			t.Errorf("Job %s took the place of one that waited", job.Name)
		}
	}
	if n, problem := len(w.Waiting(env)), w.Problem(env); n != 2 || problem != "" {
		t.Errorf("%d pods wait, and the environment says %q", n, problem)
	}
	for _, r := range runners {
		r.Connect(w, "")
	}
	w.Clock.Set(w.Clock.Now().Add(time.Hour))
	w.FillUntilOffered(env)
	if n := w.Offered(env); n != 2 {
		t.Errorf("%d runners are offered", n)
	}
}

func TestAWaitingPodWhoseRunnerStaysAwayAfterAFailoverIsReplaced(t *testing.T) {
	w, env, runners := failedOver(t)
	w.Fill(env)
	w.Clock.Set(w.Clock.Now().Add(16 * time.Second))
	w.Fill(env)
	for _, job := range w.Waiting(env) {
		if runners[job.Name] != nil {
			t.Errorf("Job %s is still there", job.Name)
		}
	}
	if w.Problem(env) == "" {
		t.Error("the environment doesn't say that its pods were lost")
	}
	if n := len(w.Waiting(env)); n != 0 {
		t.Errorf("%d pods were made without a pause", n)
	}
	w.Clock.Set(w.Clock.Now().Add(time.Minute))
	w.Fill(env)
	if n := len(w.Waiting(env)); n != 2 {
		t.Errorf("after the pause %d pods wait", n)
	}
}
