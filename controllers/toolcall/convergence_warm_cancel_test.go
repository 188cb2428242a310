package toolcall_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

// cancelOnce has somebody cancel the call.
func (s *warmStory) cancelOnce() {
	if s.cancelled || s.Get(s.call).Status.Phase.Terminal() {
		return
	}
	s.cancelled = true
	for _, p := range s.pods {
		session := s.Hub.Runner(p.Config.Hello.JobUID)
		s.handedOver = s.handedOver || p.assigned > 0 || session != nil && session.CallUID() != ""
	}
	s.Cancel(s.call)
}

// crashForLong has the next operator start hours later, and look at everything before the runners find that operator.
func (s *warmStory) crashForLong() {
	s.Outage()
	for range s.random.IntN(3) {
		s.Clock.Set(s.Clock.Now().Add(5 * time.Second))
		s.pass()
		s.poolPass()
	}
	for _, name := range s.names() {
		if p := s.pods[name]; !p.gone {
			s.reconnect(p)
		}
	}
}

// Cancels at any moment, reads that fail, and outages that are longer than every deadline, of calls that take waiting
// pods: the command starts at most once, never after a cancel that came before it, a result is never lost, and the pool
// is whole again.
func TestConvergenceOfWarmCallsWithCancelsFailingReadsAndLongOutages(t *testing.T) {
	ends, warmly := map[v1alpha1.Phase]int{}, 0
	for seed := range fixture.Seeds(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s := newWarmStory(t, seed, staysForWeeks)
			s.ReadFails = func() bool { return s.broken && s.random.IntN(16) == 0 }
			s.Rebuild()
			steps := []func(){s.pass, s.pass, s.pass, s.poolPass, s.kubelet, s.hear, s.hear, s.report, s.crash, s.crashForLong}
			cancelAt := s.random.IntN(50)
			for step := range 40 {
				if step == cancelAt {
					s.cancelOnce()
				}
				steps[s.random.IntN(len(steps))]()
			}
			s.broken = false
			for range 12 {
				s.Clock.Set(s.Clock.Now().Add(5 * time.Second))
				s.poolPass()
				s.pass()
				s.kubelet()
				s.hear()
				s.report()
			}
			s.checkEnd()
			status := s.Get(s.call).Status
			ends[status.Phase]++
			if status.Timings != nil && status.Timings.Path == v1alpha1.PathWarm {
				warmly++
			}
		})
	}
	if fixture.ApiServer != nil && !t.Failed() && (ends[v1alpha1.PhaseSucceeded] < 3 || ends[v1alpha1.PhaseCancelled] < 3 || warmly < 2) {
		t.Errorf("the calls ended as %v, %d of them in waiting pods: this tests something else", ends, warmly)
	}
}

func (s *warmStory) checkEnd() {
	t, status := s.T, s.Get(s.call).Status
	assigned, acked, stopped := 0, 0, 0
	for _, p := range s.pods {
		assigned += p.assigned
		if p.acked {
			acked++
		}
		if p.assigned > 0 && p.gone && !p.acked {
			stopped++
		}
	}
	if assigned > 1 || assigned == 1 && s.cancelled && !s.handedOver {
		t.Errorf("given out %d times; it was cancelled: %v, after it was handed over: %v", assigned, s.cancelled, s.handedOver)
	}
	if status.RetrySafe != nil && *status.RetrySafe && assigned > 0 {
		t.Error("a retry is called safe of a command that started")
	}
	switch {
	case !status.Phase.Terminal():
		t.Errorf("it is still %s, given out %d times, cancelled: %v", status.Phase, assigned, s.cancelled)
	case assigned == 1 && stopped == 0 || status.Phase == v1alpha1.PhaseSucceeded:
		if status.Reason != v1alpha1.ReasonCompleted || status.Stdout != "hi\n" || acked+stopped != 1 {
			t.Errorf("the result is lost: ended %s/%s, acknowledged %d times: %s", status.Phase, status.Reason, acked, status.Message)
		}
	case s.cancelled && status.Phase == v1alpha1.PhaseCancelled:
	case status.Reason == v1alpha1.ReasonPodRejected && status.Runner == nil:
		// The API server didn't take its Job for as long as it may wait for its start, as the clock goes.
	default:
		t.Errorf("ended %s/%s, given out %d times, cancelled: %v: %s", status.Phase, status.Reason, assigned, s.cancelled, status.Message)
	}
	waiting := 0
	for name, job := range s.jobs() {
		p := s.pods[name]
		switch {
		case metav1.GetControllerOf(job) == nil:
			waiting++
		case p == nil || !p.gone:
			t.Errorf("Job %s of the ended call is left, and its runner", name)
		}
	}
	if waiting != warmStorySize {
		t.Errorf("%d Jobs wait, want %d", waiting, warmStorySize)
	}
}
