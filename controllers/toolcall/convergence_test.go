package toolcall_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

// story is the life, under a seed, of a call, of its pod, and of the pods that wait for it.
type story struct {
	*fixture.World
	random *rand.Rand
	env    *v1alpha1.ExecutionEnvironment
	// warm is how many pods wait.
	warm   int32
	call   *v1alpha1.ToolCall
	client *fixture.Flaky
	broken bool
	// pods are the processes, by their Jobs.
	pods   map[string]*fixture.Process
	ledger *fixture.Ledger
	acked  int
	// cancelled says that the call was cancelled; handedOver that a runner had it by then, or may have.
	cancelled, handedOver bool
}

func newStory(t *testing.T, seed uint64, warm int32, change ...func(*v1alpha1.ToolCall)) *story {
	w := fixture.NewWorld(t)
	s := &story{World: w, random: rand.New(rand.NewPCG(seed, 1)), warm: warm, pods: map[string]*fixture.Process{}, ledger: newLedger()}
	s.client = &fixture.Flaky{Client: w.Client, Fail: func() fixture.Failure {
		if s.broken && s.random.IntN(3) == 0 {
			return fixture.Failure(s.random.IntN(int(fixture.Failures)))
		}
		return fixture.Succeeds
	}}
	w.Use = s.client
	w.Rebuild()
	if warm == 0 {
		s.env = w.Environment("env", fixture.AsDefault)
	} else {
		s.env = w.Environment("env", fixture.AsDefault, fixture.Warm(warm))
		// The pool is there before things go wrong: otherwise most calls would start pods of their own.
		w.Fill(s.env)
		s.kubelet()
		w.FillUntilOffered(s.env)
	}
	s.broken = true
	s.call = w.Call("c", change...)
	return s
}

func (s *story) pass() {
	_, _ = s.Reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.call)})
}

func (s *story) poolPass() {
	if s.warm > 0 {
		_, _ = s.Pools.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.env)})
	}
}

// jobs are those that are there and stay.
func (s *story) jobs() map[string]*batchv1.Job {
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

// kubelet starts a pod for every Job that has its credential, and ends the processes of those that are gone.
func (s *story) kubelet() {
	jobs := s.jobs()
	for name, job := range jobs {
		if s.pods[name] != nil || fixture.Shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(job), &corev1.Secret{}) != nil {
			continue
		}
		pod := s.Pod(job)
		p := s.Process(s.RunnerConfig(job, pod), pod, s.ledger)
		p.Acked = func(*fixture.Process, string) { s.acked++ }
		p.Refused = s.mayRefuse
		s.pods[name] = p
		p.Connect()
	}
	for _, p := range s.all() {
		if jobs[p.Job] != nil {
			continue
		}
		if len(p.Calls) > 0 && !s.cancelled {
			s.T.Errorf("the Job of the pod that has the call was deleted: %s", p.Job)
		}
		p.Kill()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: p.Config.Hello.Pod}}
		if err := s.World.Client.Delete(context.Background(), pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			s.T.Fatal(err)
		}
	}
}

func (s *story) mayRefuse(p *fixture.Process, reason string) {
	if len(p.Taken) > 0 && !s.cancelled {
		s.T.Errorf("the runner that has the call was refused: %s", reason)
	}
}

// all are the processes, in order, so that a seed tells the same story again.
func (s *story) all() (all []*fixture.Process) {
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		if p := s.pods[name]; !p.Gone {
			all = append(all, p)
		}
	}
	return all
}

func (s *story) hear() {
	for _, p := range s.all() {
		for p.Hear() {
		}
	}
}

func (s *story) say() {
	for _, p := range s.all() {
		for p.Say() {
		}
	}
}

func (s *story) work() {
	for _, p := range s.all() {
		for _, c := range p.Running() {
			p.Work(c)
		}
	}
}

// lose loses connections, with what wasn't heard or said yet.
func (s *story) lose() {
	for _, p := range s.all() {
		if s.random.IntN(2) == 0 {
			p.Connect()
		}
	}
}

func (s *story) reconnect() {
	for _, p := range s.all() {
		p.Connect()
	}
}

func (s *story) crash() {
	s.Restart()
	s.reconnect()
}

func (s *story) tell(steps int, more ...func()) {
	known := append([]func(){
		s.pass, s.pass, s.pass, s.pass, s.poolPass, s.poolPass, s.kubelet, s.hear, s.hear, s.work, s.work, s.say, s.lose, s.crash,
	}, more...)
	for range steps {
		known[s.random.IntN(len(known))]()
	}
}

// rest has everything go well for as long as it takes.
func (s *story) rest() {
	s.broken = false
	for range 12 {
		// Failures in the pool are met with a pause.
		s.Clock.Set(s.Clock.Now().Add(5 * time.Second))
		s.poolPass()
		s.pass()
		s.kubelet()
		s.hear()
		s.work()
		s.say()
	}
}

// starts are those of the call's command.
func (s *story) starts() []fixture.Start { return s.ledger.Starts[string(s.call.UID)] }

// onBothPaths tells stories of calls with a pod of their own, and of calls that take waiting pods.
func onBothPaths(t *testing.T, seeds int, tell func(t *testing.T, seed uint64, warm int32) (path v1alpha1.Path)) {
	t.Helper()
	var warmly atomic.Int32
	t.Run("stories", func(t *testing.T) {
		for name, warm := range map[string]int32{"a pod of its own": 0, "waiting pods": 2} {
			for seed := range fixture.Seeds(seeds) {
				t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
					t.Parallel() // A story mostly waits.
					if tell(t, seed, warm) == v1alpha1.PathWarm {
						warmly.Add(1)
					}
				})
			}
		}
	})
	if n := int(warmly.Load()); n < seeds/4 && !t.Failed() && fixture.ApiServer != nil {
		t.Errorf("of %d calls %d took a waiting pod: this tests something else", seeds, n)
	}
}

// Whatever the order of events, restarts and failing writes: one pod is given the call, once; it ends well, and then rests.
func TestConvergence(t *testing.T) {
	onBothPaths(t, 12, func(t *testing.T, seed uint64, warm int32) v1alpha1.Path {
		s := newStory(t, seed, warm)
		s.tell(60)
		s.rest()
		s.check()
		return s.Get(s.call).Status.Timings.Path
	})
}

func (s *story) check() {
	t := s.T
	now := s.Get(s.call)
	if len(s.starts()) != 1 || s.acked != 1 {
		t.Fatalf("started %d times, acknowledged %d times, ended %s/%s: %s", len(s.starts()), s.acked, now.Status.Phase, now.Status.Reason, now.Status.Message)
	}
	if now.Status.Phase != v1alpha1.PhaseSucceeded || now.Status.Stdout != s.starts()[0].Output {
		t.Fatalf("ended %s/%s: %s", now.Status.Phase, now.Status.Reason, now.Status.Message)
	}
	own, waiting := s.ownAndWaiting()
	if own != 1 || waiting != int(s.warm) {
		t.Errorf("%d Jobs are the call's, %d wait", own, waiting)
	}
	if s.warm == 0 {
		s.checkCold()
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

// checkCold checks what a call with a pod of its own costs.
func (s *story) checkCold() {
	secrets := &corev1.SecretList{}
	if err := fixture.Shared.GetAPIReader().List(context.Background(), secrets, client.InNamespace(s.Namespace)); err != nil || len(secrets.Items) != 1 {
		s.T.Errorf("%d credentials, %v", len(secrets.Items), err)
	}
	if s.client.Writes > 60 {
		s.T.Errorf("%d writes", s.client.Writes)
	}
}

// ownAndWaiting counts the Jobs that are the call's, and those that wait.
func (s *story) ownAndWaiting() (own, waiting int) {
	for _, job := range s.jobs() {
		switch {
		case metav1.IsControlledBy(job, s.call):
			own++
		case metav1.GetControllerOf(job) == nil:
			waiting++
		}
	}
	return own, waiting
}
