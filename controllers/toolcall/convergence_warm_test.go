package toolcall_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/testing/fixture"
)

// warmStory is the life, under a seed, of a call and of the pods that wait for it.
type warmStory struct {
	*fixture.World
	random *rand.Rand
	env    *v1alpha1.ExecutionEnvironment
	call   *v1alpha1.ToolCall
	client *fixture.Flaky
	broken bool
	pods   map[string]*warmPod
	// cancelled says that the call was cancelled; handedOver that a runner had the command by then, or may have.
	cancelled, handedOver bool
}

// warmPod is a Job's pod with its runner.
type warmPod struct {
	*fixture.Runner
	pod *corev1.Pod
	// assigned counts how often its process was told to start the command.
	assigned        int
	reported, acked bool
	// gone says that its process has ended.
	gone bool
}

const warmStorySize = 2

func newWarmStory(t *testing.T, seed uint64, change ...func(*v1alpha1.ToolCall)) *warmStory {
	w := fixture.NewWorld(t)
	s := &warmStory{World: w, random: rand.New(rand.NewPCG(seed, 2)), broken: true, pods: map[string]*warmPod{}}
	s.client = &fixture.Flaky{Client: w.Client, Fail: func() fixture.Failure {
		if s.broken && s.random.IntN(3) == 0 {
			return fixture.Failure(s.random.IntN(int(fixture.Failures)))
		}
		return fixture.Succeeds
	}}
	s.env = w.Environment("env", fixture.Warm(warmStorySize))
	// The pool is there before things go wrong: otherwise most calls would start pods of their own.
	for _, r := range w.WarmUp(s.env) {
		s.pods[r.Config.Hello.Job] = &warmPod{Runner: r, pod: s.podNamed(r.Config.Hello.Pod)}
	}
	w.Use = s.client
	w.Rebuild()
	s.call = w.Call("c", change...)
	return s
}

func (s *warmStory) podNamed(name string) *corev1.Pod {
	pod := &corev1.Pod{}
	if err := fixture.Shared.GetAPIReader().Get(context.Background(), client.ObjectKey{Namespace: s.Namespace, Name: name}, pod); err != nil {
		s.T.Fatal(err)
	}
	return pod
}

func (s *warmStory) pass() {
	_, _ = s.Reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.call)})
}

func (s *warmStory) poolPass() {
	_, _ = s.World.Pools.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.env)})
}

// jobs are those that are there and stay.
func (s *warmStory) jobs() map[string]*batchv1.Job {
	list := &batchv1.JobList{}
	if err := fixture.Shared.GetAPIReader().List(context.Background(), list, client.InNamespace(s.Namespace)); err != nil {
		s.T.Fatal(err)
	}
	jobs := map[string]*batchv1.Job{}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			jobs[list.Items[i].Name] = &list.Items[i]
		}
	}
	return jobs
}

// kubelet starts a pod for every Job that has its credential, and ends the runners of those that are gone.
func (s *warmStory) kubelet() {
	jobs := s.jobs()
	for name, job := range jobs {
		if s.pods[name] != nil || fixture.Shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(job), &corev1.Secret{}) != nil {
			continue
		}
		pod := s.Pod(job)
		s.pods[name] = &warmPod{Runner: s.World.Runner(job, pod), pod: pod}
	}
	for name, p := range s.pods {
		if jobs[name] != nil || p.gone {
			continue
		}
		if p.assigned > 0 && !p.acked && !s.cancelled {
			s.T.Errorf("the Job of the pod that has the call was deleted: %s", name)
		}
		s.exit(p)
	}
}

func (s *warmStory) exit(p *warmPod) {
	p.gone = true
	p.Conn.Close()
	fixture.Eventually(s.T, func() bool { return s.Hub.Runner(p.Config.Hello.JobUID) == nil })
}

// hear takes what the operator sent to each runner, without waiting long for it.
func (s *warmStory) hear() {
	for _, name := range s.names() {
		p := s.pods[name]
		for !p.gone && s.hearOne(p) {
		}
	}
}

// names are in order, so that a seed tells the same story again.
func (s *warmStory) names() []string {
	var names []string
	for name := range s.pods {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *warmStory) hearOne(p *warmPod) (more bool) {
	got := make(chan *wire.Message, 1)
	conn := p.Conn
	go func() {
		defer close(got)
		if m, err := conn.Receive(); err == nil {
			got <- m
		}
	}()
	select {
	case m := <-got:
		if m == nil {
			s.reconnect(p)
			return false
		}
		s.obey(p, m)
		return true
	case <-time.After(20 * time.Millisecond):
		conn.Close()
		<-got
		s.reconnect(p)
		return false
	}
}

func (s *warmStory) obey(p *warmPod, m *wire.Message) {
	switch {
	case m.Assign != nil && p.assigned == 0:
		p.assigned++
		p.Config.Hello.Call = m.Assign.CallName
	case m.Assign != nil:
		s.T.Error("a process that has the call was given it again")
	case m.Ack != nil:
		p.acked = true
		s.exit(p)
		s.PodStatus(p.pod, func(status *corev1.PodStatus) { status.Phase = corev1.PodSucceeded })
	case m.Refuse != nil:
		if p.assigned > 0 && !s.cancelled {
			s.T.Errorf("the runner that has the call was refused: %s", m.Refuse.Reason)
		}
		s.exit(p)
		s.PodStatus(p.pod, func(status *corev1.PodStatus) { status.Phase = corev1.PodFailed })
	}
}

func (s *warmStory) reconnect(p *warmPod) {
	p.Conn.Close()
	uid := ""
	if p.assigned > 0 {
		uid = string(s.call.UID)
	}
	p.Connect(s.World, uid)
	if p.reported {
		p.Report(s.World, s.call.UID, fixture.Completed)
	}
}

func (s *warmStory) report() {
	for _, name := range s.names() {
		if p := s.pods[name]; p.assigned > 0 && !p.gone {
			p.reported = true
			p.Report(s.World, s.call.UID, fixture.Completed)
		}
	}
}

func (s *warmStory) crash() {
	s.Restart()
	for _, name := range s.names() {
		if p := s.pods[name]; !p.gone {
			s.reconnect(p)
		}
	}
}

// Whatever the order of events, restarts and failing writes: one waiting pod, or one of the call's own, is given
// the call, once; it ends well, and the pool is whole again.
func TestConvergenceOfCallsThatTakeWaitingPods(t *testing.T) {
	warmly := 0
	for seed := range fixture.Seeds(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s := newWarmStory(t, seed)
			steps := []func(){s.pass, s.pass, s.pass, s.poolPass, s.poolPass, s.kubelet, s.hear, s.report, s.crash}
			for range 40 {
				steps[s.random.IntN(len(steps))]()
			}
			s.broken = false
			for range 12 {
				// Failures in the pool are met with a pause.
				s.Clock.At = s.Clock.At.Add(5 * time.Second)
				s.poolPass()
				s.pass()
				s.kubelet()
				s.hear()
				s.report()
			}
			s.check()
			if s.Get(s.call).Status.Timings.Path == v1alpha1.PathWarm {
				warmly++
			}
		})
	}
	if warmly < 10 && !t.Failed() && fixture.ApiServer != nil {
		t.Errorf("of 20 calls %d took a waiting pod: this tests something else", warmly)
	}
}

func (s *warmStory) check() {
	t := s.T
	now := s.Get(s.call)
	if now.Status.Phase != v1alpha1.PhaseSucceeded || now.Status.Stdout != "hi\n" {
		t.Fatalf("ended %s/%s: %s", now.Status.Phase, now.Status.Reason, now.Status.Message)
	}
	assigned, acked := 0, 0
	for _, p := range s.pods {
		assigned += p.assigned
		if p.acked {
			acked++
		}
	}
	if assigned != 1 || acked != 1 {
		t.Errorf("the call was given out %d times, its result acknowledged %d times", assigned, acked)
	}
	own, waiting := 0, 0
	for _, job := range s.jobs() {
		switch {
		case metav1.IsControlledBy(job, s.call):
			own++
		case metav1.GetControllerOf(job) == nil:
			waiting++
		}
	}
	if own != 1 || waiting != warmStorySize {
		t.Errorf("%d Jobs are the call's, %d wait", own, waiting)
	}
	before := s.client.Writes
	for range 5 {
		s.pass()
		s.poolPass()
	}
	if s.Get(s.call).ResourceVersion != now.ResourceVersion || s.client.Writes != before {
		t.Error("what has come to rest is still written")
	}
}
