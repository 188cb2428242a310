package toolsession

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s.io/client-go/util/workqueue"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/host"
)

// places holds which sessions were let into their environment. The sessions' status says it too, a moment later: two
// passes at the same time must not both take the last place.
type places struct {
	mu sync.Mutex
	// lines are the environments' own, names who was let in where.
	lines map[types.NamespacedName]line
	names map[types.NamespacedName]place
}

// line is one environment's: those that were let in, with their requesters.
type line map[types.UID]string

type place struct {
	uid         types.UID
	environment types.NamespacedName
}

func newPlaces() *places {
	return &places{lines: map[types.NamespacedName]line{}, names: map[types.NamespacedName]place{}}
}

// admit lets a session into its environment if there is room, for as many as come before it too. sessions are those of the
// environment that have not ended.
func (p *places) admit(env *v1alpha1.ExecutionEnvironment, session *v1alpha1.ToolSession, sessions []v1alpha1.ToolSession) bool {
	in := client.ObjectKeyFromObject(env)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[in]
	if _, has := l[session.UID]; has || holdsPlace(session) {
		return true
	}
	t := l.count(env.Spec.Sessions, sessions)
	if !t.hasRoom(requesterOf(session)) {
		return false
	}
	for _, other := range l.before(session, sessions, t) {
		if t.hasRoom(requesterOf(other)) {
			t.take(requesterOf(other))
		}
	}
	if !t.hasRoom(requesterOf(session)) {
		return false
	}
	if l == nil {
		l = line{}
		p.lines[in] = l
	}
	l[session.UID] = requesterOf(session)
	p.names[client.ObjectKeyFromObject(session)] = place{session.UID, in}
	return true
}

// taken counts the places of an environment that somebody has.
type taken struct {
	limits *v1alpha1.SessionLimits
	all    int
	by     map[string]int
}

func (t *taken) take(requester string) {
	t.all++
	t.by[requester]++
}

// hasRoom says whether another session of a requester may have a pod.
func (t *taken) hasRoom(requester string) bool {
	most, each := t.limits.Max, t.limits.MaxPerCaller
	return (most == nil || t.all < int(*most)) && (each == nil || t.by[requester] < int(*each))
}

func (l line) count(limits *v1alpha1.SessionLimits, sessions []v1alpha1.ToolSession) *taken {
	t := &taken{limits: limits, by: map[string]int{}}
	for _, requester := range l {
		t.take(requester)
	}
	for i := range sessions {
		if !holdsPlace(&sessions[i]) {
			continue
		}
		if _, counted := l[sessions[i].UID]; !counted {
			t.take(requesterOf(&sessions[i]))
		}
	}
	return t
}

// before are the sessions that could have a place and come before one, the oldest first.
func (l line) before(session *v1alpha1.ToolSession, sessions []v1alpha1.ToolSession, t *taken) []*v1alpha1.ToolSession {
	var waiting []*v1alpha1.ToolSession
	for i := range sessions {
		other := &sessions[i]
		if !isWaiting(other) || holdsPlace(other) || other.DeletionTimestamp != nil || !isBefore(other, session) || !t.hasRoom(requesterOf(other)) {
			continue
		}
		if _, has := l[other.UID]; !has {
			waiting = append(waiting, other)
		}
	}
	slices.SortFunc(waiting, compare)
	return waiting
}

// release gives a session's place back.
func (p *places) release(session *v1alpha1.ToolSession) {
	p.drop(client.ObjectKeyFromObject(session), func(uid types.UID) bool { return uid == session.UID })
}

// releaseOthers gives the place back of a session of a name that is gone, unless it is the one with a UID.
func (p *places) releaseOthers(session types.NamespacedName, except types.UID) {
	p.drop(session, func(uid types.UID) bool { return uid != except })
}

func (p *places) drop(session types.NamespacedName, is func(types.UID) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one, has := p.names[session]
	if !has || !is(one.uid) {
		return
	}
	delete(p.names, session)
	if delete(p.lines[one.environment], one.uid); len(p.lines[one.environment]) == 0 {
		delete(p.lines, one.environment)
	}
}

// compare orders sessions by their creation.
func compare(a, b *v1alpha1.ToolSession) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
}

func isBefore(a, b *v1alpha1.ToolSession) bool { return compare(a, b) < 0 }

func requesterOf(session *v1alpha1.ToolSession) string {
	if session.Spec.RequestedBy == nil {
		return ""
	}
	return session.Spec.RequestedBy.Username
}

func tooMany(env *v1alpha1.ExecutionEnvironment) string {
	limits := env.Spec.Sessions
	switch {
	case limits.MaxPerCaller == nil:
		return fmt.Sprintf("ExecutionEnvironment %q has at most %d sessions at the same time (sessions.max): the session waits for its turn", env.Name, ptr.Deref(limits.Max, 0))
	case limits.Max == nil:
		return fmt.Sprintf("ExecutionEnvironment %q has at most %d sessions of one requester at the same time (sessions.maxPerCaller): the session waits for its turn", env.Name, *limits.MaxPerCaller)
	default:
		return fmt.Sprintf("ExecutionEnvironment %q has at most %d sessions at the same time (sessions.max), %d of one requester (sessions.maxPerCaller): the session waits for its turn", env.Name, *limits.Max, *limits.MaxPerCaller)
	}
}

// maxWoken bounds how many waiting sessions one free place has looked at, and maxWokenEach how many of one requester: those
// that are over their own limit must not hide the others. The others look again by themselves, and seldom: there may be
// thousands, and each look goes through all.
const (
	maxWoken     = 100
	maxWokenEach = 20
	seldom       = 5 * time.Minute
)

// waitInLine is how long a session waits that nobody wakes.
func waitInLine(session *v1alpha1.ToolSession, sessions []v1alpha1.ToolSession) time.Duration {
	ahead := 0
	for i := range sessions {
		if isWaiting(&sessions[i]) && isBefore(&sessions[i], session) {
			ahead++
		}
	}
	if ahead < maxWoken {
		return host.RetryPause
	}
	return wait.Jitter(seldom, 0.5)
}

// waitingIn are the sessions that wait for an environment, the oldest first.
func (r *watches) waitingIn(ctx context.Context, env client.Object) []reconcile.Request {
	return r.waiting(ctx, client.ObjectKeyFromObject(env))
}

func (r *watches) waiting(ctx context.Context, env types.NamespacedName) []reconcile.Request {
	sessions, err := r.Objects.SessionsIn(ctx, env)
	if err != nil {
		return nil
	}
	var waiting []*v1alpha1.ToolSession
	for i := range sessions {
		if isWaiting(&sessions[i]) {
			waiting = append(waiting, &sessions[i])
		}
	}
	slices.SortFunc(waiting, compare)
	var names []types.NamespacedName
	woken := map[string]int{}
	for _, session := range waiting {
		if by := requesterOf(session); woken[by] < maxWokenEach && len(names) < maxWoken {
			woken[by]++
			names = append(names, client.ObjectKeyFromObject(session))
		}
	}
	return requests(names)
}

// onPlaces has the sessions looked at that wait for the place of one that has none any more.
func (r *watches) onPlaces() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	left := func(ctx context.Context, o client.Object, q queue) {
		session, ok := o.(*v1alpha1.ToolSession)
		if !ok || session.Status.Environment == nil {
			return
		}
		for _, request := range r.waiting(ctx, types.NamespacedName{Namespace: session.Namespace, Name: session.Status.Environment.Name}) {
			q.Add(request)
		}
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, ok := e.ObjectOld.(*v1alpha1.ToolSession)
			after, isSession := e.ObjectNew.(*v1alpha1.ToolSession)
			if ok && isSession && holdsPlace(before) && !holdsPlace(after) {
				left(ctx, after, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if session, ok := e.Object.(*v1alpha1.ToolSession); ok && holdsPlace(session) {
				left(ctx, session, q)
			}
		},
	}
}
