package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/jobspec"
)

// flaky is a client whose writes fail now and then, in the ways that an API server's do.
type flaky struct {
	client.Client
	fail   func() failure
	writes int
}

// failure is what happens to one write.
type failure int

const (
	succeeds failure = iota
	conflicts
	timesOut
	answerIsLost
	failures
)

var errLost = errors.New("the connection broke before the answer came")

func (f *flaky) write(do func() error) error {
	switch f.fail() {
	case conflicts:
		return apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "x", errors.New("injected"))
	case timesOut:
		return apierrors.NewTimeoutError("injected", 0)
	case answerIsLost:
		if err := do(); err != nil {
			return err
		}
		f.writes++
		return errLost
	default:
		f.writes++
		return do()
	}
}

func (f *flaky) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return f.write(func() error { return f.Client.Create(ctx, o, opts...) })
}

func (f *flaky) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return f.write(func() error { return f.Client.Delete(ctx, o, opts...) })
}

func (f *flaky) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return f.write(func() error { return f.Client.Patch(ctx, o, p, opts...) })
}

func (f *flaky) Status() client.SubResourceWriter {
	return &flakyStatus{SubResourceWriter: f.Client.Status(), flaky: f}
}

type flakyStatus struct {
	client.SubResourceWriter
	flaky *flaky
}

func (s *flakyStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.flaky.write(func() error { return s.SubResourceWriter.Patch(ctx, o, p, opts...) })
}

// story is one call's life under a seed.
type story struct {
	*world
	random *rand.Rand
	call   *v1alpha1.ToolCall
	client *flaky
	broken bool

	runner *runner
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
	w := newWorld(t)
	s := &story{world: w, random: rand.New(rand.NewPCG(seed, 1)), broken: true}
	s.client = &flaky{Client: w.client, fail: func() failure {
		if s.broken && s.random.IntN(3) == 0 {
			return failure(s.random.IntN(int(failures)))
		}
		return succeeds
	}}
	w.use = s.client
	w.rebuild()
	w.environment("env", asDefault)
	s.call = w.call("c", change...)
	return s
}

func (s *story) pass() {
	_, _ = s.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.call)})
}

// kubelet makes the pod and starts the runner, once.
func (s *story) kubelet() {
	job := &batchv1.Job{}
	if s.runner != nil || s.world.client.Get(context.Background(), types.NamespacedName{Namespace: s.namespace, Name: jobspec.Name(s.call)}, job) != nil {
		return
	}
	// A container isn't started before its credential is there.
	if shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(job), &corev1.Secret{}) != nil {
		return
	}
	s.runner = s.world.runner(job, s.pod(job))
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
		conn := s.runner.conn
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
		s.t.Error("a process that has the call was given it again")
	case m.Ack != nil:
		s.acked = true
	case m.Cancel != nil && s.cancelled && s.started == 1:
		// The command goes on until it reports.
	case m.Refuse != nil && s.cancelled && s.started == 0:
		s.exit()
	case m.Refuse != nil:
		s.t.Errorf("the call's own runner was refused: %s", m.Refuse.Reason)
	}
}

func (s *story) exit() {
	s.gone = true
	s.disconnect(s.runner)
}

func (s *story) reconnect() {
	if s.gone {
		return
	}
	s.runner.conn.Close()
	s.runner.connect(s.world, s.runnerUID())
	if s.reported {
		s.runner.report(s.world, s.call.UID, completed)
	}
}

func (s *story) report() {
	if s.started == 1 && s.runner != nil && !s.gone {
		s.reported = true
		s.runner.report(s.world, s.call.UID, completed)
	}
}

func (s *story) crash() {
	s.restart()
	if s.runner != nil {
		s.reconnect()
	}
}

// Whatever the order of events, restarts and failing writes: the call ends once, well, and then rests.
func TestConvergence(t *testing.T) {
	for seed := range seeds(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s := newStory(t, seed)
			steps := []func(){s.pass, s.pass, s.pass, s.kubelet, s.hear, s.report, s.crash}
			for range 40 {
				steps[s.random.IntN(len(steps))]()
			}
			s.broken = false
			for range 10 {
				s.clock.set(s.clock.Now().Add(time.Second))
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
	t := s.t
	now := s.get(s.call)
	if now.Status.Phase != v1alpha1.PhaseSucceeded || now.Status.Stdout != "hi\n" {
		t.Fatalf("ended %s/%s: %s", now.Status.Phase, now.Status.Reason, now.Status.Message)
	}
	if s.started != 1 || !s.acked {
		t.Errorf("started %d times, acknowledged: %v", s.started, s.acked)
	}
	jobs := &batchv1.JobList{}
	if err := shared.GetAPIReader().List(context.Background(), jobs, client.InNamespace(s.namespace)); err != nil || len(jobs.Items) != 1 {
		t.Errorf("%d Jobs, %v", len(jobs.Items), err)
	}
	secrets := &corev1.SecretList{}
	if err := shared.GetAPIReader().List(context.Background(), secrets, client.InNamespace(s.namespace)); err != nil || len(secrets.Items) != 1 {
		t.Errorf("%d credentials, %v", len(secrets.Items), err)
	}
	if s.client.writes > 60 {
		t.Errorf("%d writes", s.client.writes)
	}
	before := s.client.writes
	for range 5 {
		s.pass()
	}
	if s.get(s.call).ResourceVersion != now.ResourceVersion || s.client.writes != before {
		t.Error("a finished call is still written")
	}
}
