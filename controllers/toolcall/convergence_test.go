package toolcall_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/testing/fixture"
)

// story is one call's life under a seed.
type story struct {
	*fixture.World
	random *rand.Rand
	call   *v1alpha1.ToolCall
	client *fixture.Flaky
	broken bool

	runner *fixture.Runner
	// started counts how often the runner's process was told to start the command.
	started  int
	reported bool
	acked    bool
	// cancelled says that the call was cancelled; handedOver that its runner had the command by then, or may have.
	cancelled, handedOver bool
	// gone says that the runner's process ended: it was refused before it had the command, or its Job was deleted.
	gone bool
}

func newStory(t *testing.T, seed uint64, change ...func(*v1alpha1.ToolCall)) *story {
	w := fixture.NewWorld(t)
	s := &story{World: w, random: rand.New(rand.NewPCG(seed, 1)), broken: true}
	s.client = &fixture.Flaky{Client: w.Client, Fail: func() fixture.Failure {
		if s.broken && s.random.IntN(3) == 0 {
			return fixture.Failure(s.random.IntN(int(fixture.Failures)))
		}
		return fixture.Succeeds
	}}
	w.Use = s.client
	w.Rebuild()
	w.Environment("env", fixture.AsDefault)
	s.call = w.Call("c", change...)
	return s
}

func (s *story) pass() {
	_, _ = s.Reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.call)})
}

// kubelet makes the pod and starts the runner, once.
func (s *story) kubelet() {
	job := &batchv1.Job{}
	if s.runner != nil || s.World.Client.Get(context.Background(), types.NamespacedName{Namespace: s.Namespace, Name: jobspec.Name(s.call)}, job) != nil {
		return
	}
	// A container isn't started before its credential is there.
	if fixture.Shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(job), &corev1.Secret{}) != nil {
		return
	}
	s.runner = s.World.Runner(job, s.Pod(job))
}

// runnerUID is the call that the runner's process says it has.
func (s *story) runnerUID() string {
	if s.started > 0 {
		return string(s.call.UID)
	}
	return ""
}

// hear takes what the operator sent, without waiting long for it.
func (s *story) hear() {
	if s.runner == nil {
		return
	}
	for !s.gone {
		got := make(chan *wire.Message, 1)
		conn := s.runner.Conn
		go func() {
			m, err := conn.Receive()
			if err == nil {
				got <- m
			}
			close(got)
		}()
		select {
		case m := <-got:
			if m == nil {
				s.reconnect()
				return
			}
			s.obey(m)
		case <-time.After(20 * time.Millisecond):
			// Nothing came: the connection is given up, so that its reader ends.
			conn.Close()
			<-got
			s.reconnect()
			return
		}
	}
}

func (s *story) obey(m *wire.Message) {
	switch {
	case m.Assign != nil && s.started == 0:
		s.started++
	case m.Assign != nil:
		s.T.Error("a process that has the call was given it again")
	case m.Ack != nil:
		s.acked = true
	case m.Cancel != nil && s.cancelled && s.started == 1:
		// The command goes on until it reports.
	case m.Refuse != nil && s.cancelled && s.started == 0:
		s.exit()
	case m.Refuse != nil:
		s.T.Errorf("the call's own runner was refused: %s", m.Refuse.Reason)
	}
}

func (s *story) exit() {
	s.gone = true
	s.Disconnect(s.runner)
}

func (s *story) reconnect() {
	if s.gone {
		return
	}
	s.runner.Conn.Close()
	s.runner.Connect(s.World, s.runnerUID())
	if s.reported {
		s.runner.Report(s.World, s.call.UID, fixture.Completed)
	}
}

func (s *story) report() {
	if s.started == 1 && s.runner != nil && !s.gone {
		s.reported = true
		s.runner.Report(s.World, s.call.UID, fixture.Completed)
	}
}

func (s *story) crash() {
	s.Restart()
	if s.runner != nil {
		s.reconnect()
	}
}

// Whatever the order of events, restarts and failing writes: the call ends once, well, and then rests.
func TestConvergence(t *testing.T) {
	for seed := range fixture.Seeds(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s := newStory(t, seed)
			steps := []func(){s.pass, s.pass, s.pass, s.kubelet, s.hear, s.report, s.crash}
			for range 40 {
				steps[s.random.IntN(len(steps))]()
			}
			s.broken = false
			for range 10 {
				s.Clock.Set(s.Clock.Now().Add(time.Second))
				s.pass()
				s.kubelet()
				s.hear()
				s.report()
			}
			s.check()
		})
	}
}

func (s *story) check() {
	t := s.T
	now := s.Get(s.call)
	if now.Status.Phase != v1alpha1.PhaseSucceeded || now.Status.Stdout != "hi\n" {
		t.Fatalf("ended %s/%s: %s", now.Status.Phase, now.Status.Reason, now.Status.Message)
	}
	if s.started != 1 || !s.acked {
		t.Errorf("started %d times, acknowledged: %v", s.started, s.acked)
	}
	jobs := &batchv1.JobList{}
	if err := fixture.Shared.GetAPIReader().List(context.Background(), jobs, client.InNamespace(s.Namespace)); err != nil || len(jobs.Items) != 1 {
		t.Errorf("%d Jobs, %v", len(jobs.Items), err)
	}
	secrets := &corev1.SecretList{}
	if err := fixture.Shared.GetAPIReader().List(context.Background(), secrets, client.InNamespace(s.Namespace)); err != nil || len(secrets.Items) != 1 {
		t.Errorf("%d credentials, %v", len(secrets.Items), err)
	}
	if s.client.Writes > 60 {
		t.Errorf("%d writes", s.client.Writes)
	}
	before := s.client.Writes
	for range 5 {
		s.pass()
	}
	if s.Get(s.call).ResourceVersion != now.ResourceVersion || s.client.Writes != before {
		t.Error("a finished call is still written")
	}
}
