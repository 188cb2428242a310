package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

const (
	sessionCount = 16
	// inSessions is how many calls most faults meet in sessions, and perKill how many for each time that the operator is killed.
	inSessions = 480
	perKill    = 100
	// atOnce is how many calls a session runs at once, unended how many it has that have not ended: some of them wait.
	atOnce  = 2
	unended = 6
	// claimSize is the size of a session's workspace, where it outlives the pod.
	claimSize = "64Mi"
)

// sessions are those of a test, as they were when all of them were ready.
type sessions struct {
	bed  *bed
	list []*v1alpha1.ToolSession
}

// newSessions makes sessions and waits until all take calls. The first ones have a claim.
func (b *bed) newSessions(t *testing.T, claims int) *sessions {
	t.Helper()
	s := &sessions{bed: b}
	for i := range sessionCount {
		session := &v1alpha1.ToolSession{
			ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: fmt.Sprintf("session-%02d", i)},
			Spec:       v1alpha1.ToolSessionSpec{IdleTimeoutSeconds: ptr.To(int32(0)), MaxConcurrentCalls: ptr.To(int32(atOnce))},
		}
		if i < claims {
			session.Spec.Workspace = &v1alpha1.SessionWorkspace{Size: resource.MustParse(claimSize)}
		}
		must(t, b.client.Create(t.Context(), session))
		s.list = append(s.list, session)
	}
	s.await(t, "sessions that take calls", s.list, func(now *v1alpha1.ToolSession) bool { return now.Status.Phase == v1alpha1.SessionReady })
	for _, session := range s.list {
		must(t, b.client.Get(t.Context(), client.ObjectKeyFromObject(session), session))
	}
	return s
}

// kept are the sessions with a claim, lost those that end with their pod.
func (s *sessions) kept() []*v1alpha1.ToolSession {
	return s.filter(func(x *v1alpha1.ToolSession) bool { return x.Spec.Workspace != nil })
}

func (s *sessions) lost() []*v1alpha1.ToolSession {
	return s.filter(func(x *v1alpha1.ToolSession) bool { return x.Spec.Workspace == nil })
}

func (s *sessions) filter(is func(*v1alpha1.ToolSession) bool) (some []*v1alpha1.ToolSession) {
	for _, session := range s.list {
		if is(session) {
			some = append(some, session)
		}
	}
	return some
}

// await waits until all of some sessions are as is says, and fails with the first one that isn't.
func (s *sessions) await(t *testing.T, what string, some []*v1alpha1.ToolSession, is func(now *v1alpha1.ToolSession) bool) {
	t.Helper()
	await(t, what, func(ctx context.Context) (bool, error) {
		for _, session := range some {
			now := &v1alpha1.ToolSession{}
			if err := s.bed.client.Get(ctx, client.ObjectKeyFromObject(session), now); err != nil {
				return false, err
			}
			if !is(now) {
				return false, fmt.Errorf("session %s is %s, %s, in pod %q, its incarnation %d: %s",
					now.Name, now.Status.Phase, now.Status.Reason, now.Status.Pod, now.Status.Incarnation, now.Status.Message)
			}
		}
		return true, nil
	})
}

// expectUntouched wants every session to take calls in the pod that it had.
func (s *sessions) expectUntouched(t *testing.T) {
	t.Helper()
	for _, before := range s.list {
		s.await(t, "session that takes calls in the pod it had", []*v1alpha1.ToolSession{before}, func(now *v1alpha1.ToolSession) bool {
			return now.Status.Phase == v1alpha1.SessionReady && now.Status.Incarnation == before.Status.Incarnation &&
				now.Status.Runner != nil && now.Status.Runner.PodUID == before.Status.Runner.PodUID
		})
	}
}

// expectMoved wants sessions with a claim to take calls in another pod, and those without one to have ended.
func (s *sessions) expectMoved(t *testing.T) {
	t.Helper()
	for _, before := range s.kept() {
		s.await(t, "session that takes calls in another pod", []*v1alpha1.ToolSession{before}, func(now *v1alpha1.ToolSession) bool {
			return now.Status.Phase == v1alpha1.SessionReady && now.Status.Incarnation > before.Status.Incarnation &&
				now.Status.Runner != nil && now.Status.Runner.PodUID != before.Status.Runner.PodUID
		})
	}
	s.awaitEnded(t)
}

// awaitEnded waits until the sessions without a claim have ended with their pod.
func (s *sessions) awaitEnded(t *testing.T) {
	t.Helper()
	s.await(t, "end of the sessions without a claim", s.lost(), func(now *v1alpha1.ToolSession) bool {
		return now.Status.Phase == v1alpha1.SessionEnded && now.Status.Reason == v1alpha1.ReasonPodLost
	})
}

// newInSession is a short call of a session; some of them write much.
func newInSession(i int, session *v1alpha1.ToolSession) *expected {
	e := newExpected("call", i, time.Duration(i*7919%2000)*time.Millisecond)
	if i%8 != 0 {
		e.stdout, e.stderr = text(e.name+".out", i%200), ""
	}
	e.session = session
	return e
}

// newSessionLoad creates calls in the sessions in turns and follows them until the test ends. Each session always has some
// that run and some that wait, until all are created, also when creating them has to wait for the API server.
func (s *sessions) newSessionLoad(t *testing.T, count int) *load {
	t.Helper()
	l := newFollowed(t, s.bed)
	mine := map[string][]*expected{}
	for i := range count {
		session := s.list[i%len(s.list)]
		call := newInSession(i, session)
		l.calls = append(l.calls, call)
		mine[session.Name] = append(mine[session.Name], call)
	}
	l.next = s.list[0]
	for session, calls := range mine {
		l.inBackground(t, func(ctx context.Context) { l.feed(ctx, session, calls) })
	}
	return l
}

// feed creates the calls of a session, as others of it end.
func (l *load) feed(ctx context.Context, session string, calls []*expected) {
	for i, call := range calls {
		for l.endedOf(session) < i-unended+1 {
			if !sleep(ctx, 10*time.Millisecond) {
				return
			}
		}
		for !l.created(ctx, call) {
			if !sleep(ctx, 100*time.Millisecond) {
				return
			}
		}
	}
}

// created tries to create a call. While the API server is away an error is no answer; a refusal is one, and is noted.
func (l *load) created(ctx context.Context, call *expected) bool {
	err := l.bed.client.Create(ctx, call.object(l.bed.namespace))
	if apierrors.IsInvalid(err) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.broken = append(l.broken, fmt.Sprintf("call %s was refused: %v", call.name, err))
		return true
	}
	return err == nil || apierrors.IsAlreadyExists(err)
}

// sleep waits, and says whether the context goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (l *load) endedOf(session string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endedIn[session]
}

// awaitEnded waits until that many calls have ended, so that others are on their way.
func (l *load) awaitEnded(t *testing.T, count int) {
	t.Helper()
	await(t, fmt.Sprintf("end of %d calls", count), func(context.Context) (bool, error) { return l.count(hasEnded) >= count, nil })
}

// expectEndsOfSessions wants calls to have ended as their sessions did: those of a session that goes on never because it
// ended. It says how many there are of each.
func (l *load) expectEndsOfSessions(t *testing.T, s *sessions) {
	t.Helper()
	kept := map[string]bool{}
	for _, session := range s.kept() {
		kept[session.Name] = true
	}
	seen, _, _ := l.snapshot()
	counts := map[string]int{}
	for name, call := range seen {
		if call.Spec.SessionRef == nil {
			continue
		}
		ends := kept[call.Spec.SessionRef.Name]
		counts[fmt.Sprintf("%s, session goes on %t, retrySafe %t", call.Status.Reason, ends, ptr.Deref(call.Status.RetrySafe, false))]++
		if ends && call.Status.Reason == v1alpha1.ReasonSessionEnded {
			t.Errorf("call %s ended %s, and its session goes on: %s", name, call.Status.Reason, call.Status.Message)
		}
	}
	t.Logf("ends of the calls: %v", counts)
	if counts[fmt.Sprintf("%s, session goes on true, retrySafe false", v1alpha1.ReasonPodLost)] == 0 {
		t.Log("no call of a session with a claim was running when its pod went: the fault came between two calls")
	}
}

// A call of a session isn't an ordinary one: its object names the session, and stays until the test has judged it.
func TestCallsOfSessionsNameThem(t *testing.T) {
	session := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Name: "session-03", UID: "uid-3"}}
	call := newInSession(17, session).object("n")
	ref := call.Spec.SessionRef
	if ref == nil || ref.Name != "session-03" || ref.UID != "uid-3" || ptr.Deref(call.Spec.TTLSecondsAfterFinished, 0) < 3600 {
		t.Errorf("got %+v", call.Spec)
	}
	if !strings.Contains(call.Spec.Shell.Command, "call-017 ") || newExpected("call", 17, 0).object("n").Spec.SessionRef != nil {
		t.Errorf("the command is %s", call.Spec.Shell.Command)
	}
}

// What the test waits with is what the watch shows: a call that has ended makes room for the next one of its session.
func TestEndsAreCountedBySession(t *testing.T) {
	l := &load{seen: map[string]*v1alpha1.ToolCall{}, ended: map[string]time.Time{}, endedIn: map[string]int{}}
	see := func(i int, session string, phase v1alpha1.Phase) {
		call := newInSession(i, &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Name: session}}).object("n")
		call.Status.Phase = phase
		l.saw(call)
	}
	see(1, "a", v1alpha1.PhaseRunning)
	see(1, "a", v1alpha1.PhaseSucceeded)
	see(1, "a", v1alpha1.PhaseSucceeded)
	see(2, "b", v1alpha1.PhaseRunning)
	if l.endedOf("a") != 1 || l.endedOf("b") != 0 || len(l.broken) != 0 {
		t.Errorf("got %v, %v", l.endedIn, l.broken)
	}
}
