package toolsession_test

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
	"toolcall.dev/operator/internal/testing/fixture"
)

func TestASessionsWorkspaceLiesOnItsClaim(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s := w.Session("s", fixture.WithWorkspace)
	w.Settle(s)
	claim := &corev1.PersistentVolumeClaim{}
	if err := fixture.Shared.GetAPIReader().Get(t.Context(), types.NamespacedName{Namespace: w.Namespace, Name: jobspec.ClaimName(s)}, claim); err != nil {
		t.Fatal(err)
	}
	if size := claim.Spec.Resources.Requests[corev1.ResourceStorage]; !slices.Equal(claim.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}) || size.String() != "1Gi" || !metav1.IsControlledBy(claim, s) {
		t.Errorf("claim: %+v", claim)
	}
	job, _ := w.SessionJob(s)
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
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	w.WarmUp(env)
	s := w.Session("s", fixture.WithWorkspace)
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
	if w.Offered(env) != 1 {
		t.Error("the waiting pod was taken")
	}
}

func TestASessionIsSuspendedAndResumed(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s", fixture.WithWorkspace)
	before := w.GetSession(s).Status
	call, waits := w.CallIn(s, "running"), w.CallIn(s, "waits")
	w.Waits(waits, s)
	r.Reconnect(w, running(call))
	w.Settle(s)

	w.EditSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
	w.Settle(s)
	now := w.Expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonSessionSuspended)
	r.HearEnd()
	if now.Status.Job != before.Job || now.Status.Runner.KeyHash != before.Runner.KeyHash || !w.HasNamedJob(before.Job) {
		t.Fatal("the session let its process go while that had a call")
	}
	// Nobody else gets the session meanwhile.
	w.EditSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = false })
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonSessionSuspended)
	w.EditSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })

	w.FinishCall(call)
	w.Settle(s)
	now = w.Expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonSessionSuspended)
	if now.Status.Job != "" || now.Status.Pod != "" || w.HasNamedJob(before.Job) || !w.HasClaim(s) {
		t.Errorf("the suspended session has Job %q, pod %q, a claim: %v", now.Status.Job, now.Status.Pod, w.HasClaim(s))
	}
	w.KeepAfter(time.Hour, s)
	w.Expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonSessionSuspended)

	w.EditSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = false })
	next := w.MakeReady(s)
	now = w.GetSession(s)
	if next.Begun.Incarnation != 2 || now.Status.Incarnation != 2 || now.Status.Job == before.Job || now.Status.Runner.KeyHash == before.Runner.KeyHash {
		t.Errorf("resumed: %+v", now.Status)
	}
	if *now.Status.Timings.ReadyMilliseconds != *before.Timings.ReadyMilliseconds {
		t.Error("the timing isn't that of the first pod")
	}
}

func TestAnIdleSessionWithAClaimIsSuspendedUntilItsNextCall(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, _ := w.ReadySession("s", fixture.WithWorkspace)
	w.KeepAfter(16*time.Minute, s)
	if now := w.Expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonIdleTimeout); now.Status.Job != "" {
		t.Errorf("its Job is %s", now.Status.Job)
	}
	// One that isn't known to be allowed wakes nobody.
	call := w.CallIn(s, "c")
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonIdleTimeout)
	w.Waits(call, s)
	w.MakeReady(s)
}

func TestACallDoesNotWakeASessionThatSomebodySuspended(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, _ := w.ReadySession("s", fixture.WithWorkspace)
	w.KeepAfter(16*time.Minute, s)
	w.EditSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
	w.Waits(w.CallIn(s, "c"), s)
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonSessionSuspended)
}

// With a claim the session goes on in another pod, once no call is left that the lost process may have got.
func TestASessionWithAClaimOutlivesItsPod(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s", fixture.WithWorkspace)
	call, waits := w.CallIn(s, "running"), w.CallIn(s, "waits")
	w.Waits(waits, s)
	r.Reconnect(w, running(call))
	before := w.GetSession(s).Status
	w.Disconnect(r.Runner)
	w.PodStatus(r.Pod, fixture.Terminated("Error", ""))
	w.Settle(s)
	now := w.Expect(s, v1alpha1.SessionPending, v1alpha1.ReasonPodLost)
	if now.Status.Runner.KeyHash != before.Runner.KeyHash || now.Status.Job != before.Job {
		t.Fatal("another process may be given calls while the lost one's haven't ended")
	}
	w.FinishCall(call)
	next := w.MakeReady(s)
	if next.Begun.Incarnation != 2 || !w.HasClaim(s) {
		t.Errorf("begun: %+v", next.Begun)
	}
}

// An operator that never heard the process can't tell which calls it had: each from before that is waited for.
func TestAfterARestartEveryCallOfALostProcessIsWaitedFor(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s", fixture.WithWorkspace)
	call := w.CallIn(s, "c")
	r.Conn.Close()
	w.Elapse(2 * time.Second)
	w.Restart()
	w.PodStatus(r.Pod, fixture.Terminated("Error", ""))
	w.Settle(s)
	if now := w.Expect(s, v1alpha1.SessionPending, v1alpha1.ReasonPodLost); now.Status.Incarnation != 1 || now.Status.Pod == "" {
		t.Fatal("the session let its process go")
	}
	w.FinishCall(call)
	w.Settle(s)
	if now := w.GetSession(s); now.Status.Job != jobspec.SessionJobName(s, 2) {
		t.Errorf("its Job is %q", now.Status.Job)
	}
}

func TestWhatBecomesOfTheClaimAtTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		workspace func(*v1alpha1.ToolSession)
		stays     bool
	}{
		"Delete": {fixture.WithWorkspace, false},
		"Keep":   {keepingWorkspace, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			w.Environment("env", fixture.AsDefault)
			s, _ := w.ReadySession("s", tc.workspace)
			w.DeleteSession(s)
			w.Settle(s)
			if _, found := w.Find(s); found || w.HasClaim(s) != tc.stays {
				t.Errorf("session: %v, claim: %v", found, w.HasClaim(s))
			}
		})
	}
}

// Nobody's calls are given what somebody else put in the place of the claim.
func TestAClaimOfSomebodyElseIsNotTheSessions(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s := w.Session("s", fixture.WithWorkspace)
	claim := jobspec.BuildClaim(s)
	claim.Labels = nil
	if err := w.Client.Create(context.Background(), claim, client.DisableReadYourWritesConsistency); err != nil {
		t.Fatal(err)
	}
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonStartFailed)
	if !w.HasClaim(s) || w.JobCount() != 0 {
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
	w := fixture.NewWorld(t)
	w.VouchForRequesters()
	w.Environment("env", fixture.AsDefault)
	w.Use = unseen{w.Client}
	w.Rebuild()
	s, r := w.ReadySession("s", fixture.WithWorkspace, func(s *v1alpha1.ToolSession) { s.Spec.IdleTimeoutSeconds = seconds(60) })
	call := w.CallIn(s, "c")
	r.HandOver(w, call)
	w.KeepAfter(61*time.Second, s)
	w.Expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
}
