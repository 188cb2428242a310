package toolcall_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	callqueue "toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/testing/fixture"
)

// callStory is the life, under a seed, of one or two sessions with their pods and calls.
type callStory struct {
	*fixture.World
	*history
	random   *rand.Rand
	plan     storyPlan
	client   *fixture.Flaky
	broken   bool
	env      *v1alpha1.ExecutionEnvironment
	sessions []*v1alpha1.ToolSession
	// processes are those of pods, by their Jobs; leaving are told to end by the kubelet.
	processes map[string]*fixture.Process
	leaving   map[string]bool
	// names are those of calls, with their number of creations.
	names []string
	born  int
	// entered are the calls that have come into the operator's cache.
	entered map[string]bool
	ledger  *fixture.Ledger
	// told is what happened, for the one who looks for a fault; seen counts it.
	told []string
	seen map[string]int
}

// storyPlan says what kind of story it is.
type storyPlan struct {
	warmly, claim bool
	sessions      int
	concurrent    int32
}

func newCallStory(t *testing.T, seed uint64, plan storyPlan) *callStory {
	w := fixture.NewWorld(t)
	s := &callStory{
		World: w, history: watchCalls(w), random: rand.New(rand.NewPCG(seed, 11)), plan: plan, processes: map[string]*fixture.Process{},
		leaving: map[string]bool{}, entered: map[string]bool{}, ledger: newLedger(), seen: map[string]int{},
	}
	s.history.ledger = s.ledger
	s.client = &fixture.Flaky{Client: w.Client, Fail: func() fixture.Failure {
		if s.broken && s.random.IntN(6) == 0 {
			return fixture.Failure(s.random.IntN(int(fixture.ArrivesLate) + 1))
		}
		return fixture.Succeeds
	}}
	w.Use = s.client
	w.ReadFails = func() bool { return s.broken && s.random.IntN(40) == 0 }
	w.Rebuild()
	if plan.warmly {
		s.env = w.Environment("env", fixture.AsDefault, fixture.Warm(1))
		w.Fill(s.env)
		s.kubelet()
		w.FillUntilOffered(s.env)
	} else {
		s.env = w.Environment("env", fixture.AsDefault)
	}
	for i := range plan.sessions {
		s.sessions = append(s.sessions, s.newSession(fmt.Sprint("s-", i)))
	}
	if !s.isOneIn(3) {
		// Otherwise little happens but starts.
		for range 3 {
			s.flow()
			s.kubelet()
		}
	}
	s.broken = true
	return s
}

func (s *callStory) newSession(name string) *v1alpha1.ToolSession {
	return s.World.Session(name, func(session *v1alpha1.ToolSession) {
		session.Spec.MaxConcurrentCalls = ptr.To(s.plan.concurrent)
		if s.plan.claim {
			fixture.WithWorkspace(session)
		}
	})
}

// note says what happens, and counts it by its kind.
func (s *callStory) note(format string, args ...any) {
	s.seen[format]++
	s.told = append(s.told, fmt.Sprintf(format, args...))
}

func (s *callStory) isOneIn(n int) bool { return s.random.IntN(n) == 0 }

func pick[T any](s *callStory, of []T) (one T, is bool) {
	if len(of) == 0 {
		return one, false
	}
	return of[s.random.IntN(len(of))], true
}

// enter has the calls take their turns that have come into the cache.
func (s *callStory) enter() {
	calls := &v1alpha1.ToolCallList{}
	if err := s.client.List(context.Background(), calls, client.InNamespace(s.Namespace)); err != nil {
		s.T.Fatal(err)
	}
	slices.SortFunc(calls.Items, func(a, b v1alpha1.ToolCall) int { return int(revision(&a) - revision(&b)) })
	for i := range calls.Items {
		c := &calls.Items[i]
		if s.entered[string(c.UID)] {
			continue
		}
		s.entered[string(c.UID)] = true
		turn := callqueue.Position{UID: c.UID, Sequence: revision(c), Background: c.Spec.Background, FirstSeen: s.Clock.Now()}
		if c.Status.Session != nil && c.Status.Session.Sequence > 0 {
			turn.Sequence = c.Status.Session.Sequence
		}
		s.Queue.Add(client.ObjectKey{Namespace: s.Namespace, Name: c.Spec.SessionRef.Name}, client.ObjectKeyFromObject(c), turn)
	}
}

func revision(o client.Object) int64 {
	n, _ := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	return n
}

// look has one call looked at, or all.
func (s *callStory) look() {
	s.enter()
	if name, ok := pick(s, s.names); ok && !s.isOneIn(3) {
		s.lookAt(name)
		return
	}
	names := slices.Clone(s.names)
	s.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		s.lookAt(name)
	}
}

func (s *callStory) lookAt(name string) {
	_, err := s.Reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: s.Namespace, Name: name}})
	if s.broken {
		s.note("look at %s: %v", name, err)
	}
}

func (s *callStory) keepOne() {
	session, _ := pick(s, s.sessions)
	err := s.KeepError(session)
	now, _ := s.Find(session)
	s.note("keep %s: %v, it is %s/%s, incarnation %d in %s", session.Name, err, now.Status.Phase, now.Status.Reason, now.Status.Incarnation, now.Status.Job)
}

// all are the processes, in order.
func (s *callStory) all() (all []*fixture.Process) {
	for _, job := range slices.Sorted(maps.Keys(s.processes)) {
		if p := s.processes[job]; !p.Gone {
			all = append(all, p)
		}
	}
	return all
}

// kubelet starts a pod for every Job that has its credential, and ends the processes of those that are gone.
func (s *callStory) kubelet() {
	list := &batchv1.JobList{}
	if err := fixture.Shared.GetAPIReader().List(context.Background(), list, client.InNamespace(s.Namespace)); err != nil {
		s.T.Fatal(err)
	}
	jobs := map[string]*batchv1.Job{}
	for i := range list.Items {
		job := &list.Items[i]
		jobs[job.Name] = job
		if s.processes[job.Name] != nil || fixture.Shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(job), &corev1.Secret{}) != nil {
			continue
		}
		s.startPodOf(job)
	}
	for _, p := range s.all() {
		job := jobs[p.Job]
		if job != nil && job.DeletionTimestamp == nil && ptr.Deref(job.Spec.ActiveDeadlineSeconds, 0) != 1 {
			continue
		}
		if p.Begun == nil || s.leaving[p.Job] || s.isOneIn(2) {
			s.note("the pod of %s ends with its Job", p.Job)
			p.Exit(corev1.PodFailed)
			continue
		}
		s.note("the process of %s is told to end", p.Job)
		s.leaving[p.Job] = true
		p.End(result.PodLost, result.PodLost)
		p.ExitIfOver()
	}
}

func (s *callStory) startPodOf(job *batchv1.Job) {
	s.note("start the pod of %s", job.Name)
	node := "node-1"
	if s.isOneIn(3) {
		node = fmt.Sprintf("node-%s-%d", s.Namespace, len(s.processes))
		s.Node(node)
	}
	pod := s.PodOn(job, node)
	config := s.RunnerConfig(job, pod)
	config.Hello.Node = node
	p := s.Process(config, pod, s.ledger)
	p.Acked = s.checkAck
	p.Note = s.note
	p.Started = func(p *fixture.Process, c *fixture.ProcessCall) {
		// Nobody looks at a call that hasn't come into the cache, but this test.
		if s.entered[c.UID] {
			s.checkStart(p, c)
		}
	}
	s.processes[job.Name] = p
	p.Connect()
}

func (s *callStory) hear() {
	if p, ok := pick(s, s.all()); ok {
		for range 1 + s.random.IntN(3) {
			if !p.Hear() {
				return
			}
		}
	}
}

func (s *callStory) say() {
	if p, ok := pick(s, s.all()); ok {
		for range 1 + s.random.IntN(3) {
			p.Say()
		}
	}
}

func (s *callStory) work() {
	if p, ok := pick(s, s.all()); ok {
		if c, ok := pick(s, p.Running()); ok {
			s.note("work on %s in %s, begins %v, stopped %q", c.Name, p.Job, c.Begins, c.Stopped)
			p.Work(c)
		}
	}
}

func (s *callStory) pool() {
	if s.plan.warmly {
		_, _ = s.Pools.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.env)})
	}
}

// tell has things happen in any order.
func (s *callStory) tell(steps int) {
	known := []func(){
		s.look, s.look, s.look, s.look, s.keepOne, s.keepOne, s.keepOne, s.kubelet, s.hear, s.hear, s.say, s.say, s.work, s.work, s.work, s.work, s.flow, s.flow, s.flow,
		s.create, s.create, s.create, s.disturb, s.free, s.lose, s.redial, s.die, s.crash, s.arrive, s.lag, s.wait, s.suspendOne, s.finishOne, s.pool,
	}
	for range steps {
		known[s.random.IntN(len(known))]()
	}
}

// disturb has somebody cancel or delete a call.
func (s *callStory) disturb() {
	if s.isOneIn(2) {
		s.cancelOne()
	} else {
		s.deleteOne()
	}
}

// rest has everything go well for as long as it takes.
func (s *callStory) rest() {
	s.broken = false
	for len(s.client.Late) > 0 {
		s.arrive()
	}
	s.client.Calls, s.client.Sessions = nil, nil
	s.free()
	for range 9 {
		s.Elapse(7 * time.Second)
		s.redial()
		for _, session := range s.sessions {
			_ = s.KeepError(session)
			_ = s.KeepError(session)
		}
		s.pool()
		s.kubelet()
		s.enter()
		for _, name := range s.names {
			s.lookAt(name)
		}
		for _, p := range s.all() {
			for p.Hear() {
			}
			for _, c := range p.Running() {
				p.Work(c)
				if c.Result == nil && !c.Background {
					p.Work(c)
				}
			}
			for p.Say() {
			}
		}
	}
}
