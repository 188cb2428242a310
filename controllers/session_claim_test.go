package controllers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

func (w *world) claim(s *v1alpha1.ToolSession) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	if err := shared.GetAPIReader().Get(context.Background(), types.NamespacedName{Namespace: w.namespace, Name: jobspec.ClaimName(s)}, claim); err != nil {
		w.t.Fatal(err)
	}
	return claim
}

// claimPhase writes how far a claim is, as the control plane does.
func (w *world) claimPhase(claim *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase) {
	w.t.Helper()
	claim.Status.Phase = phase
	if err := w.client.Status().Update(context.Background(), claim, client.DisableReadYourWritesConsistency); err != nil {
		w.t.Fatal(err)
	}
}

// eventAbout writes an Event about a claim, as the control plane and provisioners do.
func (w *world) eventAbout(claim *corev1.PersistentVolumeClaim, reason, message string, at time.Time) {
	w.t.Helper()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "event-"}, Reason: reason, Message: message, LastTimestamp: metav1.NewTime(at),
		InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: w.namespace, Name: claim.Name, UID: claim.UID},
	}
	if err := w.client.Create(context.Background(), event, client.DisableReadYourWritesConsistency); err != nil {
		w.t.Fatal(err)
	}
}

// The scheduler knows only that a claim has no volume.
func TestASessionWhoseClaimGetsNoVolumeSaysWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		phase     corev1.PersistentVolumeClaimPhase
		want, not string
	}{
		"a claim without a volume": {
			corev1.ClaimPending, v1alpha1.ReasonUnschedulable + ": the session's pod did not start within 120 s (startTimeoutSeconds of the environment): PersistentVolumeClaim NAME is Pending: ProvisioningFailed: no room", "no class",
		},
		"a claim whose volume is gone": {corev1.ClaimLost, v1alpha1.ReasonUnschedulable + ": the session's pod did not start within 120 s (startTimeoutSeconds of the environment): PersistentVolumeClaim NAME is Lost", "none"},
		"a claim with a volume":        {corev1.ClaimBound, v1alpha1.ReasonStartTimeout + ": the session's pod did not start within 120 s", "no room"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.environment("env", asDefault)
			s := w.session("s", withWorkspace)
			w.settle(s)
			claim := w.claim(s)
			w.claimPhase(claim, tc.phase)
			at := time.Unix(1700000000, 0)
			w.eventAbout(claim, "ProvisioningFailed", "no room", at.Add(time.Second))
			w.eventAbout(claim, "ProvisioningFailed", "no class", at)
			w.eventAbout(claim, "WaitForFirstConsumer", "waits", at.Add(time.Minute))
			w.keepAfter(3*time.Minute, s)
			message := w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonStartFailed).Status.Message
			if want := strings.ReplaceAll(tc.want, "NAME", claim.Name); !strings.HasPrefix(message, want) || strings.Contains(message, tc.not) {
				t.Errorf("message: %s\nwant: %s", message, want)
			}
			if _, found := w.sessionJob(s); found || w.hasClaim(s) {
				t.Error("the Job or the claim is there")
			}
		})
	}
}

// An empty claim in the place of the session's would have its calls go on without the files that they made.
func TestASessionWhoseClaimIsLostDoesNotBeginAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		lose func(*corev1.PersistentVolumeClaim)
		says string
		left bool
	}{
		"gone":            {func(c *corev1.PersistentVolumeClaim) { c.Finalizers = nil }, "was deleted, and the session's files with it", false},
		"on its way out":  {func(*corev1.PersistentVolumeClaim) {}, "was deleted, and the session's files with it", false},
		"somebody else's": {func(c *corev1.PersistentVolumeClaim) { c.Labels = nil }, "isn't the one that the operator made", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.environment("env", asDefault)
			s, _ := w.readySession("s", withWorkspace)
			w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
			w.settle(s)
			claim := w.claim(s)
			tc.lose(claim)
			if err := w.client.Update(t.Context(), claim, client.DisableReadYourWritesConsistency); err != nil {
				t.Fatal(err)
			}
			if !tc.left {
				if err := w.client.Delete(t.Context(), claim, client.DisableReadYourWritesConsistency); err != nil {
					t.Fatal(err)
				}
			}
			w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = false })
			w.settle(s)
			now := w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonStartFailed)
			if !strings.Contains(now.Status.Message, tc.says) {
				t.Errorf("message: %s", now.Status.Message)
			}
			if w.hasClaim(s) != tc.left || w.jobCount() != 0 {
				t.Errorf("a claim is there: %v; Jobs: %d", w.hasClaim(s), w.jobCount())
			}
		})
	}
}

// Somebody takes the finalizer away as they end the session: nobody owns the claim.
func TestASessionThatIsEndedAndLetGoAtOnceLeavesNothing(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, _ := w.readySession("s", withWorkspace)
	now := w.getSession(s)
	before := now.DeepCopy()
	now.Finalizers, now.Spec.End = nil, true
	if err := w.client.Patch(t.Context(), now, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.settle(s)
	w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonEndRequested)
	w.elapse(24 * time.Hour)
	w.settle(s)
	if _, found := w.find(s); found || w.hasClaim(s) {
		t.Errorf("session there: %t, claim there: %t", found, w.hasClaim(s))
	}
}
