package toolcall_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/testing/fixture"
)

func staysForWeeks(c *v1alpha1.ToolCall) {
	c.Spec.TTLSecondsAfterFinished = ptr.To(int32(30 * 24 * 3600))
}

// cancelOnce has somebody cancel the call.
func (s *story) cancelOnce() {
	if s.cancelled || s.Get(s.call).Status.Phase.Terminal() {
		return
	}
	s.cancelled, s.handedOver = true, s.started > 0
	if s.runner != nil {
		if session := s.Hub.Runner(s.runner.Config.Hello.JobUID); session != nil && session.CallUID() != "" {
			s.handedOver = true
		}
	}
	s.Cancel(s.call)
}

// crashForLong has the next operator start hours later, and look at the call before its runner finds that operator.
func (s *story) crashForLong() {
	s.Outage()
	for range s.random.IntN(3) {
		s.Clock.Set(s.Clock.Now().Add(5 * time.Second))
		s.pass()
	}
	if s.runner != nil {
		s.reconnect()
	}
}

// stopDeleted ends the runner of a Job that is gone, as the kubelet does.
func (s *story) stopDeleted() {
	if s.runner == nil || s.gone {
		return
	}
	job := &batchv1.Job{}
	err := fixture.Shared.GetAPIReader().Get(context.Background(), types.NamespacedName{Namespace: s.Namespace, Name: jobspec.Name(s.call)}, job)
	if apierrors.IsNotFound(err) || err == nil && job.DeletionTimestamp != nil {
		if s.started == 1 && !s.acked && !s.cancelled {
			s.T.Error("the Job of a running call was deleted")
		}
		s.exit()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.runner.Config.Hello.Pod}}
		if err := s.World.Client.Delete(context.Background(), pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			s.T.Fatal(err)
		}
	}
}

// Cancels at any moment, reads that fail, and outages that are longer than every deadline: the command starts at most
// once, never after a cancel that came before it, and a result is never lost.
func TestConvergenceWithCancelsFailingReadsAndLongOutages(t *testing.T) {
	ends := map[v1alpha1.Phase]int{}
	for seed := range fixture.Seeds(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s := newStory(t, seed, staysForWeeks)
			s.ReadFails = func() bool { return s.broken && s.random.IntN(12) == 0 }
			s.Rebuild()
			steps := []func(){s.pass, s.pass, s.pass, s.pass, s.kubelet, s.hear, s.hear, s.report, s.crash, s.crashForLong, s.stopDeleted}
			cancelAt := s.random.IntN(60)
			for step := range 40 {
				if step == cancelAt {
					s.cancelOnce()
				}
				steps[s.random.IntN(len(steps))]()
			}
			s.broken = false
			for range 10 {
				s.Clock.Set(s.Clock.Now().Add(time.Second))
				s.pass()
				s.kubelet()
				s.stopDeleted()
				s.hear()
				s.report()
			}
			s.checkEnd()
			ends[s.Get(s.call).Status.Phase]++
		})
	}
	if fixture.ApiServer != nil && !t.Failed() && (ends[v1alpha1.PhaseSucceeded] < 3 || ends[v1alpha1.PhaseCancelled] < 3) {
		t.Errorf("the calls ended as %v: this tests something else", ends)
	}
}

func (s *story) checkEnd() {
	t, status := s.T, s.Get(s.call).Status
	if s.started > 1 || s.started == 1 && s.cancelled && !s.handedOver {
		t.Errorf("started %d times; it was cancelled: %v, after it was handed over: %v", s.started, s.cancelled, s.handedOver)
	}
	if status.RetrySafe != nil && *status.RetrySafe && s.started > 0 {
		t.Error("a retry is called safe of a command that started")
	}
	stopped := s.started == 1 && s.gone
	switch {
	case !status.Phase.Terminal():
		t.Errorf("it is still %s, started %d times, cancelled: %v", status.Phase, s.started, s.cancelled)
	case s.started == 1 && !s.gone || status.Phase == v1alpha1.PhaseSucceeded:
		if status.Reason != v1alpha1.ReasonCompleted || status.Stdout != "hi\n" || !s.acked && !stopped {
			t.Errorf("the result is lost: ended %s/%s, acknowledged: %v: %s", status.Phase, status.Reason, s.acked, status.Message)
		}
		return
	case s.cancelled && status.Phase == v1alpha1.PhaseCancelled:
	case status.Reason == v1alpha1.ReasonPodRejected && status.Runner == nil:
		// The API server didn't take its Job for as long as it may wait for its start, as the clock goes.
	default:
		t.Errorf("ended %s/%s, started %d times, cancelled: %v: %s", status.Phase, status.Reason, s.started, s.cancelled, status.Message)
	}
	if status.Runner == nil && !*status.RetrySafe {
		t.Error("a retry isn't called safe of a call that no runner had")
	}
	if s.runner != nil && !s.gone {
		t.Error("the runner of the ended call is left waiting")
	}
	// A runner that was refused ends, and its Job with it.
	if s.HasJob(s.call) && s.Live(s.call) && !s.gone {
		t.Error("the Job of the ended call is left")
	}
}
