package controllers_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

func TestASessionsWorkspaceLiesOnItsClaim(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s := w.session("s", withWorkspace)
	w.settle(s)
	claim := &corev1.PersistentVolumeClaim{}
	if err := shared.GetAPIReader().Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: jobspec.ClaimName(s)}, claim); err != nil {
		t.Fatal(err)
	}
	if size := claim.Spec.Resources.Requests[corev1.ResourceStorage]; !slices.Equal(claim.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}) || size.String() != "1Gi" || !metav1.IsControlledBy(claim, s) {
		t.Errorf("claim: %+v", claim)
	}
	job, _ := w.sessionJob(s)
	mounts := map[string]string{}
	for _, m := range job.Spec.Template.Spec.Containers[0].VolumeMounts {
		for _, v := range job.Spec.Template.Spec.Volumes {
			if v.Name == m.Name && v.PersistentVolumeClaim != nil {
				mounts[m.MountPath] = v.PersistentVolumeClaim.ClaimName
			}
		}
	}
	if mounts["/workspace"] != claim.Name || mounts["/home/session"] != claim.Name || mounts["/tmp"] != "" {
		t.Errorf("on claims: %v", mounts)
	}
}

// A session never takes a waiting pod for a claim: a pod's volumes are its own from the beginning.
func TestASessionWithAClaimHasAJobOfItsOwn(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	w.warmUp(env)
	s := w.session("s", withWorkspace)
	w.settle(s)
	w.expect(s, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
	if w.offered(env) != 1 {
		t.Error("the waiting pod was taken")
	}
}

func TestASessionIsSuspendedAndResumed(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, r := w.readySession("s", withWorkspace)
	before := w.getSession(s).Status
	call, waits := w.callIn(s, "running"), w.callIn(s, "waits")
	w.waits(waits, s)
	r.reconnect(w, running(call))
	w.settle(s)

	w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
	w.settle(s)
	now := w.expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonSessionSuspended)
	r.hearEnd()
	if now.Status.Job != before.Job || now.Status.Runner.KeyHash != before.Runner.KeyHash || !w.hasNamedJob(before.Job) {
		t.Fatal("the session let its process go while that had a call")
	}
	// Nobody else gets the session meanwhile.
	w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = false })
	w.settle(s)
	w.expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonSessionSuspended)
	w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })

	w.finishCall(call)
	w.settle(s)
	now = w.expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonSessionSuspended)
	if now.Status.Job != "" || now.Status.Pod != "" || w.hasNamedJob(before.Job) || !w.hasClaim(s) {
		t.Errorf("the suspended session has Job %q, pod %q, a claim: %v", now.Status.Job, now.Status.Pod, w.hasClaim(s))
	}
	w.keepAfter(time.Hour, s)
	w.expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonSessionSuspended)

	w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = false })
	next := w.makeReady(s)
	now = w.getSession(s)
	if next.begun.Incarnation != 2 || now.Status.Incarnation != 2 || now.Status.Job == before.Job || now.Status.Runner.KeyHash == before.Runner.KeyHash {
		t.Errorf("resumed: %+v", now.Status)
	}
	if *now.Status.Timings.ReadyMilliseconds != *before.Timings.ReadyMilliseconds {
		t.Error("the timing isn't that of the first pod")
	}
}

func TestAnIdleSessionWithAClaimIsSuspendedUntilItsNextCall(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, _ := w.readySession("s", withWorkspace)
	w.keepAfter(16*time.Minute, s)
	if now := w.expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonIdleTimeout); now.Status.Job != "" {
		t.Errorf("its Job is %s", now.Status.Job)
	}
	// One that isn't known to be allowed wakes nobody.
	call := w.callIn(s, "c")
	w.settle(s)
	w.expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonIdleTimeout)
	w.waits(call, s)
	w.makeReady(s)
}

func TestACallDoesNotWakeASessionThatSomebodySuspended(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, _ := w.readySession("s", withWorkspace)
	w.keepAfter(16*time.Minute, s)
	w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
	w.waits(w.callIn(s, "c"), s)
	w.settle(s)
	w.expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonSessionSuspended)
}

// With a claim the session goes on in another pod, once no call is left that the lost process may have got.
func TestASessionWithAClaimOutlivesItsPod(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, r := w.readySession("s", withWorkspace)
	call, waits := w.callIn(s, "running"), w.callIn(s, "waits")
	w.waits(waits, s)
	r.reconnect(w, running(call))
	before := w.getSession(s).Status
	w.disconnect(r.runner)
	w.podStatus(r.pod, terminated("Error", ""))
	w.settle(s)
	now := w.expect(s, v1alpha1.SessionPending, v1alpha1.ReasonPodLost)
	if now.Status.Runner.KeyHash != before.Runner.KeyHash || now.Status.Job != before.Job {
		t.Fatal("another process may be given calls while the lost one's haven't ended")
	}
	w.finishCall(call)
	next := w.makeReady(s)
	if next.begun.Incarnation != 2 || !w.hasClaim(s) {
		t.Errorf("begun: %+v", next.begun)
	}
}

// An operator that never heard the process can't tell which calls it had: each from before that is waited for.
func TestAfterARestartEveryCallOfALostProcessIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, r := w.readySession("s", withWorkspace)
	call := w.callIn(s, "c")
	r.conn.Close()
	w.elapse(2 * time.Second)
	w.restart()
	w.podStatus(r.pod, terminated("Error", ""))
	w.settle(s)
	if now := w.expect(s, v1alpha1.SessionPending, v1alpha1.ReasonPodLost); now.Status.Incarnation != 1 || now.Status.Pod == "" {
		t.Fatal("the session let its process go")
	}
	w.finishCall(call)
	w.settle(s)
	if now := w.getSession(s); now.Status.Job != jobspec.SessionJobName(s, 2) {
		t.Errorf("its Job is %q", now.Status.Job)
	}
}

func TestWhatBecomesOfTheClaimAtTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		workspace func(*v1alpha1.ToolSession)
		stays     bool
	}{
		"Delete": {withWorkspace, false},
		"Keep":   {keepingWorkspace, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.environment("env", asDefault)
			s, _ := w.readySession("s", tc.workspace)
			w.deleteSession(s)
			w.settle(s)
			if _, found := w.find(s); found || w.hasClaim(s) != tc.stays {
				t.Errorf("session: %v, claim: %v", found, w.hasClaim(s))
			}
		})
	}
}

// Nobody's calls are given what somebody else put in the place of the claim.
func TestAClaimOfSomebodyElseIsNotTheSessions(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s := w.session("s", withWorkspace)
	claim := jobspec.BuildClaim(s)
	claim.Labels = nil
	if err := w.client.Create(context.Background(), claim, client.DisableReadYourWritesConsistency); err != nil {
		t.Fatal(err)
	}
	w.settle(s)
	w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonStartFailed)
	if !w.hasClaim(s) || w.jobCount() != 0 {
		t.Error("the claim was deleted, or a Job made")
	}
}

// unseen is a cache that has no calls yet.
type unseen struct{ client.Client }

func (u unseen) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*v1alpha1.ToolCallList); ok {
		return nil
	}
	return u.Client.List(ctx, list, opts...)
}

// A call that was just handed over isn't cancelled because the list of calls doesn't show it.
func TestASessionWhoseRunnerHasACallIsNotIdle(t *testing.T) {
	w := newWorld(t)
	w.vouchForRequesters()
	w.environment("env", asDefault)
	w.use = unseen{w.client}
	w.rebuild()
	s, r := w.readySession("s", withWorkspace, func(s *v1alpha1.ToolSession) { s.Spec.IdleTimeoutSeconds = seconds(60) })
	call := w.callIn(s, "c")
	w.reconcile(call)
	if m := r.receive(); m.Assign == nil {
		t.Fatalf("got %+v", m)
	}
	w.keepAfter(61*time.Second, s)
	w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
}
