package toolsession_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/testing/fixture"
)

// sessionStory is the life, under a seed, of a session, of its pods and of one call in each of them.
type sessionStory struct {
	*fixture.World
	random  *rand.Rand
	session *v1alpha1.ToolSession
	env     *v1alpha1.ExecutionEnvironment
	client  *fixture.Flaky
	broken  bool
	pods    map[string]*storyPod
	calls   int
}

// storyPod is a Job's pod with the process in it.
type storyPod struct {
	*fixture.SessionRunner
	job string
	// call is the one that the process has, nil when it has none.
	call *v1alpha1.ToolCall
	// gone says that the process has ended.
	gone bool
}

func newSessionStory(t *testing.T, seed uint64, warmly bool, change ...func(*v1alpha1.ToolSession)) *sessionStory {
	w := fixture.NewWorld(t)
	s := &sessionStory{World: w, random: rand.New(rand.NewPCG(seed, 7)), pods: map[string]*storyPod{}}
	s.client = &fixture.Flaky{Client: w.Client, Fail: func() fixture.Failure {
		if s.broken && s.random.IntN(4) == 0 {
			return fixture.Failure(s.random.IntN(int(fixture.Failures)))
		}
		return fixture.Succeeds
	}}
	w.Use = s.client
	w.ReadFails = func() bool { return s.broken && s.random.IntN(15) == 0 }
	w.Rebuild()
	if warmly {
		s.env = w.Environment("env", fixture.Warm(1))
		for name, r := range w.WarmUp(s.env) {
			s.pods[name] = &storyPod{SessionRunner: &fixture.SessionRunner{Runner: r, Pod: w.PodNamed(r.Config.Hello.Pod)}, job: name}
		}
	} else {
		s.env = w.Environment("env", fixture.AsDefault)
	}
	s.session = w.Session("s", change...)
	s.broken = true
	return s
}

func (s *sessionStory) pass() { _ = s.KeepError(s.session) }

func (s *sessionStory) jobs() map[string]*batchv1.Job {
	list := &batchv1.JobList{}
	if err := fixture.Shared.GetAPIReader().List(context.Background(), list, client.InNamespace(s.Namespace)); err != nil {
		s.T.Fatal(err)
	}
	jobs := map[string]*batchv1.Job{}
	for i := range list.Items {
		jobs[list.Items[i].Name] = &list.Items[i]
	}
	return jobs
}

// kubelet starts a pod for every Job that has its credential, and ends the processes of those that are gone or expired.
func (s *sessionStory) kubelet() {
	jobs := s.jobs()
	for name, job := range jobs {
		if s.pods[name] != nil || fixture.Shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(job), &corev1.Secret{}) != nil {
			continue
		}
		pod := s.Pod(job)
		s.pods[name] = &storyPod{SessionRunner: &fixture.SessionRunner{Runner: s.Runner(job, pod), Pod: pod}, job: name}
	}
	for _, name := range s.names() {
		p, job := s.pods[name], jobs[name]
		expired := job != nil && job.Spec.ActiveDeadlineSeconds != nil && *job.Spec.ActiveDeadlineSeconds == 1
		if p.gone || job != nil && !expired {
			continue
		}
		if p.call != nil && !expired {
			s.T.Errorf("the Job of the process that has a call was deleted: %s", name)
		}
		s.end(p, corev1.PodFailed)
	}
}

func (s *sessionStory) names() []string {
	var names []string
	for name := range s.pods {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// end ends a process. The calls' controller ends its call then.
func (s *sessionStory) end(p *storyPod, phase corev1.PodPhase) {
	p.gone = true
	p.Exit(s.World, phase)
}

// lose has a pod die now and then.
func (s *sessionStory) lose() {
	if s.random.IntN(4) > 0 {
		return
	}
	for _, name := range s.names() {
		if p := s.pods[name]; !p.gone && s.random.IntN(2) == 0 {
			s.end(p, corev1.PodFailed)
			return
		}
	}
}

// hear takes what the operator sent to each process.
func (s *sessionStory) hear() {
	for _, name := range s.names() {
		p := s.pods[name]
		for !p.gone && s.hearOne(p) {
		}
	}
}

func (s *sessionStory) hearOne(p *storyPod) (more bool) {
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
			s.redial(p)
			return false
		}
		s.obey(p, m)
		return true
	case <-time.After(20 * time.Millisecond):
		conn.Close()
		<-got
		s.redial(p)
		return false
	}
}

func (s *sessionStory) obey(p *storyPod, m *wire.Message) {
	switch {
	case m.Begin != nil && p.Begun == nil:
		now, _ := s.Find(s.session)
		if bound := now.Status.Runner; bound == nil || bound.PodUID != string(p.Pod.UID) || now.Status.Incarnation != m.Begin.Incarnation {
			s.T.Errorf("a process began that isn't recorded: %+v, recorded is %+v", m.Begin, now.Status)
		}
		p.Begun = m.Begin
	case m.Begin != nil && *m.Begin != *p.Begun:
		s.T.Errorf("a process that serves %+v is made to serve %+v", p.Begun, m.Begin)
	case m.End != nil:
		p.Ended = m.End.Reason
		s.finishOf(p)
		s.end(p, corev1.PodSucceeded)
	case m.Refuse != nil && p.Begun != nil:
		s.T.Errorf("a process that serves the session was refused: %s", m.Refuse.Reason)
	case m.Refuse != nil:
		s.end(p, corev1.PodFailed)
	}
}

func (s *sessionStory) redial(p *storyPod) {
	if p.call != nil {
		p.Reconnect(s.World, running(p.call))
		return
	}
	p.Reconnect(s.World)
}

// work gives a process of the session a call, as the controller of calls does, or has it end.
func (s *sessionStory) work() {
	for _, name := range s.names() {
		p := s.pods[name]
		switch {
		case p.call != nil:
			// Of a process that is gone the call ends too: it is proven.
			s.finishOf(p)
		case p.Begun != nil && !p.gone && p.Ended == "":
			s.assign(p)
		}
	}
}

// assign hands a call over to the process that is recorded, and no other.
func (s *sessionStory) assign(p *storyPod) {
	now, found := s.Find(s.session)
	runner := s.Hub.Runner(p.Config.Hello.JobUID)
	if !found || now.Status.Phase != v1alpha1.SessionReady || runner == nil || now.Status.Runner.KeyHash != runner.KeyHash() || !now.TakesCalls() || now.Spec.Suspend {
		return
	}
	for _, other := range s.pods {
		if other.call != nil {
			s.T.Errorf("the session is ready in %s while %s has a call", p.job, other.job)
		}
	}
	s.calls++
	call := s.CallIn(now, fmt.Sprint("c-", s.calls))
	a := &wire.Assignment{CallUID: string(call.UID), CallName: call.Name, Decision: "sealed"}
	if runner.Assign(string(now.UID), a) != nil {
		s.FinishCall(call)
		return
	}
	p.call = call
	p.Taken++
}

func (s *sessionStory) finishOf(p *storyPod) {
	if p.call == nil {
		return
	}
	s.FinishCall(p.call)
	if runner := s.Hub.Runner(p.Config.Hello.JobUID); runner != nil && !p.gone {
		// It is acknowledged: the process has nothing left.
		p.call = nil
		s.redial(p)
	}
	p.call = nil
}

func (s *sessionStory) crash() {
	s.Restart()
	for _, name := range s.names() {
		if p := s.pods[name]; !p.gone {
			s.redial(p)
		}
	}
}

func (s *sessionStory) wait() { s.Elapse(time.Duration(s.random.IntN(20)) * time.Second) }

func (s *sessionStory) pause() {
	s.tryEdit(func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = !spec.Suspend && spec.Workspace != nil })
}

func (s *sessionStory) tryEdit(change func(*v1alpha1.ToolSessionSpec)) {
	if _, found := s.Find(s.session); found {
		s.EditSession(s.session, change)
	}
}

// finish ends the session, or deletes it.
func (s *sessionStory) finish() {
	if s.random.IntN(2) == 0 {
		s.tryEdit(func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
		return
	}
	if err := s.World.Client.Delete(context.Background(), s.session); client.IgnoreNotFound(err) != nil {
		s.T.Fatal(err)
	}
}

func (s *sessionStory) tell(steps int, also ...func()) {
	known := append([]func(){s.pass, s.pass, s.pass, s.pass, s.kubelet, s.hear, s.work, s.work, s.crash, s.lose, s.wait}, also...)
	for range steps {
		known[s.random.IntN(len(known))]()
	}
}

// rest has everything go well for as long as it takes.
func (s *sessionStory) rest() {
	s.broken = false
	for range 15 {
		s.Elapse(4 * time.Second)
		for range 3 {
			s.pass()
		}
		s.kubelet()
		s.hear()
		for _, name := range s.names() {
			s.finishOf(s.pods[name])
		}
	}
}

// checkRest says that nothing is written any more.
func (s *sessionStory) checkRest() {
	before := s.client.Writes
	for range 5 {
		s.pass()
	}
	if s.client.Writes != before {
		s.T.Errorf("what has come to rest is written %d times", s.client.Writes-before)
	}
}

// Whatever the order of events, crashes, lost answers and failing reads: only the recorded process serves the session, one
// at a time; a session that isn't ended is ready in the end if it has a claim or its pod lives; nothing is left of one that
// is.
func TestConvergenceOfSessions(t *testing.T) {
	for name, tc := range map[string]struct {
		warmly bool
		change []func(*v1alpha1.ToolSession)
	}{
		"cold":         {},
		"warm":         {warmly: true},
		"with a claim": {change: []func(*v1alpha1.ToolSession){fixture.WithWorkspace}},
	} {
		ready := 0
		for seed := range fixture.Seeds(4) {
			t.Run(fmt.Sprint(name, ", seed ", seed), func(t *testing.T) {
				s := newSessionStory(t, seed, tc.warmly, tc.change...)
				s.tell(40, s.pause)
				if _, found := s.Find(s.session); found {
					s.tryEdit(func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = false })
				}
				s.rest()
				s.checkAlive()
				if s.GetSession(s.session).Status.Phase == v1alpha1.SessionReady {
					ready++
				}
				s.broken = true
				s.finish()
				s.tell(15)
				s.rest()
				s.checkGone()
			})
		}
		if ready < 2 && !t.Failed() && fixture.ApiServer != nil {
			t.Errorf("%s: %d sessions were ready: this tests something else", name, ready)
		}
	}
}

func (s *sessionStory) checkAlive() {
	now := s.GetSession(s.session)
	lost := now.Spec.Workspace == nil && now.Status.Phase == v1alpha1.SessionEnded && (now.Status.Reason == v1alpha1.ReasonPodLost || now.Status.Reason == v1alpha1.ReasonStartFailed)
	switch {
	case now.Status.Phase == v1alpha1.SessionReady:
		serving := 0
		for _, p := range s.pods {
			if !p.gone && p.Begun != nil {
				serving++
			}
		}
		if serving != 1 {
			s.T.Errorf("%d processes serve the session", serving)
		}
	case lost, now.Status.Reason == v1alpha1.ReasonStartFailed:
	default:
		s.T.Errorf("the session is %s/%s: %s", now.Status.Phase, now.Status.Reason, now.Status.Message)
	}
	s.checkRest()
}

func (s *sessionStory) checkGone() {
	now, found := s.Find(s.session)
	if found && (now.Status.Phase != v1alpha1.SessionEnded || now.DeletionTimestamp != nil) {
		s.T.Fatalf("the session is %s/%s, deleted: %v", now.Status.Phase, now.Status.Reason, now.DeletionTimestamp != nil)
	}
	for name, job := range s.jobs() {
		if jobspec.SessionOf(job) != "" && job.DeletionTimestamp == nil {
			s.T.Errorf("Job %s is left", name)
		}
	}
	if s.HasClaim(s.session) {
		s.T.Error("the claim is left")
	}
	for _, p := range s.pods {
		if p.Begun != nil && !p.gone {
			s.T.Errorf("the process of %s is left", p.job)
		}
	}
	s.checkRest()
	if err := fixture.Shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(s.session), &v1alpha1.ToolSession{}); found == apierrors.IsNotFound(err) {
		s.T.Error("the session went when nothing happened")
	}
}
