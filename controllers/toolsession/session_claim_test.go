package toolsession_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

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
			w := fixture.NewWorld(t)
			w.Environment("env", fixture.AsDefault)
			s := w.Session("s", fixture.WithWorkspace)
			w.Settle(s)
			claim := w.Claim(s)
			w.ClaimPhase(claim, tc.phase)
			at := time.Unix(1700000000, 0)
			w.EventAbout(claim, "ProvisioningFailed", "no room", at.Add(time.Second))
			w.EventAbout(claim, "ProvisioningFailed", "no class", at)
			w.EventAbout(claim, "WaitForFirstConsumer", "waits", at.Add(time.Minute))
			w.KeepAfter(3*time.Minute, s)
			message := w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonStartFailed).Status.Message
			if want := strings.ReplaceAll(tc.want, "NAME", claim.Name); !strings.HasPrefix(message, want) || strings.Contains(message, tc.not) {
				t.Errorf("message: %s\nwant: %s", message, want)
			}
			if _, found := w.SessionJob(s); found || w.HasClaim(s) {
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
			w := fixture.NewWorld(t)
			w.Environment("env", fixture.AsDefault)
			s, _ := w.ReadySession("s", fixture.WithWorkspace)
			w.EditSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
			w.Settle(s)
			claim := w.Claim(s)
			tc.lose(claim)
			if err := w.Client.Update(t.Context(), claim, client.DisableReadYourWritesConsistency); err != nil {
				t.Fatal(err)
			}
			if !tc.left {
				if err := w.Client.Delete(t.Context(), claim, client.DisableReadYourWritesConsistency); err != nil {
					t.Fatal(err)
				}
			}
			w.EditSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = false })
			w.Settle(s)
			now := w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonStartFailed)
			if !strings.Contains(now.Status.Message, tc.says) {
				t.Errorf("message: %s", now.Status.Message)
			}
			if w.HasClaim(s) != tc.left || w.JobCount() != 0 {
				t.Errorf("a claim is there: %v; Jobs: %d", w.HasClaim(s), w.JobCount())
			}
		})
	}
}

// Somebody takes the finalizer away as they end the session: nobody owns the claim.
func TestASessionThatIsEndedAndLetGoAtOnceLeavesNothing(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, _ := w.ReadySession("s", fixture.WithWorkspace)
	now := w.GetSession(s)
	before := now.DeepCopy()
	now.Finalizers, now.Spec.End = nil, true
	if err := w.Client.Patch(t.Context(), now, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonEndRequested)
	w.Elapse(24 * time.Hour)
	w.Settle(s)
	if _, found := w.Find(s); found || w.HasClaim(s) {
		t.Errorf("session there: %t, claim there: %t", found, w.HasClaim(s))
	}
}
