package toolsession

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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

// hasPlace says whether an environment has room for a session, and for as many as come before it too. sessions are those of the
// environment that have not ended. A place is taken by the write of the status that says so: the caller lets nobody else in until then.
func hasPlace(env *v1alpha1.ExecutionEnvironment, session *v1alpha1.ToolSession, sessions []v1alpha1.ToolSession) bool {
	t := &taken{limits: env.Spec.Sessions, by: map[string]int{}}
	for i := range sessions {
		if HoldsPlace(&sessions[i]) {
			t.take(requesterOf(&sessions[i]))
		}
	}
	if !t.hasRoom(requesterOf(session)) {
		// Nobody is put in order: there may be thousands.
		return false
	}
	var earlier []*v1alpha1.ToolSession
	for i := range sessions {
		other := &sessions[i]
		if isWaiting(other) && !HoldsPlace(other) && other.DeletionTimestamp == nil && isBefore(other, session) && t.hasRoom(requesterOf(other)) {
			earlier = append(earlier, other)
		}
	}
	slices.SortFunc(earlier, compare)
	for _, other := range earlier {
		if t.hasRoom(requesterOf(other)) {
			t.take(requesterOf(other))
		}
	}
	return t.hasRoom(requesterOf(session))
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
			if ok && isSession && HoldsPlace(before) && !HoldsPlace(after) {
				left(ctx, after, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if session, ok := e.Object.(*v1alpha1.ToolSession); ok && HoldsPlace(session) {
				left(ctx, session, q)
			}
		},
	}
}
