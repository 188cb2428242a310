package toolcall_test

import (
	"sync"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
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
	s.cancelled = true
	for _, p := range s.pods {
		runner := s.Hub.Runner(p.Config.Hello.JobUID)
		s.handedOver = s.handedOver || len(p.Taken) > 0 || runner != nil && runner.Taken() > 0
	}
	s.Cancel(s.call)
}

// crashForLong has the next operator start hours later, and look at everything before the runners find that operator.
func (s *story) crashForLong() {
	s.Outage()
	for range s.random.IntN(3) {
		s.Clock.Set(s.Clock.Now().Add(5 * time.Second))
		s.pass()
		s.poolPass()
	}
	s.reconnect()
}

// Cancels at any moment, reads that fail, and outages that are longer than every deadline: the command starts at most
// once, never after a cancel that came before it, a result is never lost, and a pool is whole again.
func TestConvergenceWithCancelsFailingReadsAndLongOutages(t *testing.T) {
	var mu sync.Mutex
	ends := map[v1alpha1.Phase]int{}
	onBothPaths(t, 16, func(t *testing.T, seed uint64, warm int32) v1alpha1.Path {
		s := newStory(t, seed, warm, staysForWeeks)
		s.ReadFails = func() bool { return s.broken && s.random.IntN(14) == 0 }
		s.Rebuild()
		cancelAt := s.random.IntN(80)
		s.tell(min(cancelAt, 60), s.crashForLong)
		if cancelAt < 60 {
			s.cancelOnce()
			s.tell(60-cancelAt, s.crashForLong)
		}
		s.rest()
		s.checkEnd()
		status := s.Get(s.call).Status
		mu.Lock()
		ends[status.Phase]++
		mu.Unlock()
		return ptr.Deref(status.Timings, v1alpha1.CallTimings{}).Path
	})
	if fixture.ApiServer != nil && !t.Failed() && (ends[v1alpha1.PhaseSucceeded] < 6 || ends[v1alpha1.PhaseCancelled] < 6) {
		t.Errorf("the calls ended as %v: this tests something else", ends)
	}
}

func (s *story) checkEnd() {
	t, status, started := s.T, s.Get(s.call).Status, len(s.starts())
	// A process that was ended with its Job has said nothing.
	isLost := false
	for _, p := range s.pods {
		isLost = isLost || p.Gone && len(p.Calls) > 0
	}
	if started > 1 || started == 1 && s.cancelled && !s.handedOver {
		t.Errorf("started %d times; it was cancelled: %v, after it was handed over: %v", started, s.cancelled, s.handedOver)
	}
	if status.RetrySafe != nil && *status.RetrySafe && started > 0 {
		t.Error("a retry is called safe of a command that started")
	}
	switch {
	case !status.Phase.Terminal():
		t.Errorf("it is still %s, started %d times, cancelled: %v", status.Phase, started, s.cancelled)
	case status.Phase == v1alpha1.PhaseSucceeded && status.Reason == v1alpha1.ReasonCompleted && started == 1:
		if status.Stdout != s.starts()[0].Output {
			t.Errorf("the result is another one: %q", status.Stdout)
		}
	case s.cancelled && status.Phase == v1alpha1.PhaseCancelled:
	case (status.Reason == v1alpha1.ReasonPodRejected || status.Reason == v1alpha1.ReasonStartTimeout) && status.Runner == nil:
		// The API server didn't take its Job, or nothing started its pod, for as long as it may wait for its start, as the clock goes.
	default:
		t.Errorf("ended %s/%s, started %d times, cancelled: %v: %s", status.Phase, status.Reason, started, s.cancelled, status.Message)
	}
	if started == 1 && !isLost && (s.acked != 1 || status.Stdout != s.starts()[0].Output) {
		t.Errorf("the result is lost: ended %s/%s, acknowledged %d times: %s", status.Phase, status.Reason, s.acked, status.Message)
	}
	if status.Phase.Terminal() && status.Runner == nil && !*status.RetrySafe {
		t.Error("a retry isn't called safe of a call that no runner had")
	}
	s.checkNothingIsLeft()
}

func (s *story) checkNothingIsLeft() {
	waiting := 0
	for name, job := range s.jobs() {
		p := s.pods[name]
		switch {
		case metav1.GetControllerOf(job) == nil:
			waiting++
		case p == nil || !p.Gone:
			s.T.Errorf("Job %s of the ended call is left, and its runner", name)
		}
	}
	if waiting != int(s.warm) {
		s.T.Errorf("%d Jobs wait, want %d", waiting, s.warm)
	}
}
