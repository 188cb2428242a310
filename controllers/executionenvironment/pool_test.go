package executionenvironment

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
)

// Nothing else has the environment looked at again when the operator begins to listen.
func TestAPoolIsLookedAtAgainWhichWasLookedAtBeforeTheOperatorListens(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	hub := dispatch.NewHub(func(*dispatch.Runner, dispatch.News) {})
	r := NewReconciler(Options{Hub: hub})
	p := &pool{env: &v1alpha1.ExecutionEnvironment{}, backoff: &backoff{}, now: now}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "job", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	if problem := r.problemOf(p, job, nil); problem != "" || p.wake == 0 {
		t.Fatalf("problem %q, looked at again in %s", problem, p.wake)
	}
	hub.Listening(now)
	for p.now = p.now.Add(p.wake); !p.now.After(now.Add(dispatch.ReconnectWait)); p.now = p.now.Add(p.wake) {
		p.wake = 0
		if problem := r.problemOf(p, job, nil); problem != "" || p.wake == 0 {
			t.Fatalf("problem %q, looked at again in %s", problem, p.wake)
		}
	}
	if problem := r.problemOf(p, job, nil); problem == "" {
		t.Error("a pod whose runner never connected is kept")
	}
}
