package output_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/testing/fixture"
)

// Whatever fails on the way: the store, writes to the API, the operator, the connection. As long as the pod is there and all
// is back within five minutes, the output is whole in the end, and the runner is let go after that is written.
func TestOutputIsWholeWhateverFailsOnTheWay(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s, random := newStoring(t), rand.New(rand.NewPCG(seed, 7))
			s.Environment("env", fixture.AsDefault)
			stdout := noise(seed, 1<<20+int(random.Int32N(1<<20)))
			call, p := s.ends("c", stdout, nil)
			broken := true
			s.Use = &fixture.Flaky{Client: s.Client, Fail: func() fixture.Failure {
				if broken && random.IntN(2) == 0 {
					return fixture.Failure(random.IntN(int(fixture.Failures)))
				}
				return fixture.Succeeds
			}}
			s.Rebuild()
			for range 30 {
				s.step(random, call, p)
			}
			broken = false
			if s.isAway {
				s.move(false)
			}
			s.comeBack(call, p)
			s.settle(call)
			if stream := s.Get(call).Status.Streams.Stdout; stream.State != v1alpha1.StreamComplete || *stream.Kept != int64(len(stdout)) {
				t.Errorf("it is %s, %d of %d bytes", stream.State, *stream.Kept, len(stdout))
			}
			if !s.isStored(call, output.Stdout, stdout) {
				t.Error("the store has something else")
			}
			s.reconcile(call)
			p.expectAck()
			before := s.Get(call).ResourceVersion
			for range 3 {
				s.reconcile(call)
			}
			if s.Get(call).ResourceVersion != before {
				t.Error("it is written again")
			}
		})
	}
}

// step is something that happens, and a look at the call.
func (s *storing) step(random *rand.Rand, call *v1alpha1.ToolCall, p *keptPod) {
	switch random.IntN(8) {
	case 0, 1:
		s.move(!s.isAway)
	case 2:
		s.Clock.Set(s.Clock.Now().Add(2 * time.Second))
	case 3:
		s.crash()
		s.comeBack(call, p)
	case 4:
		s.comeBack(call, p)
	}
	_, _ = s.Reconciler.Reconcile(s.T.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(call)})
	_, _ = s.reconcileOutput(call)
	if len(p.heard) == 0 {
		return
	}
	if status := s.Get(call).Status; status.Streams == nil || status.Streams.Stdout.State != v1alpha1.StreamComplete {
		s.T.Fatalf("the runner may go: %s, %+v", status.Phase, status.Streams)
	}
}

// comeBack connects the pod again, unless it may go.
func (s *storing) comeBack(call *v1alpha1.ToolCall, p *keptPod) {
	if len(p.heard) == 0 {
		p.comesBack(s, call)
	}
}
