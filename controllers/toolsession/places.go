package toolsession

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s.io/client-go/util/workqueue"

	"toolcall.dev/operator/api/v1alpha1"
)

// places holds which sessions were let into their environment. The sessions' status says it too, a moment later: two
// passes at the same time must not both take the last place.
type places struct {
	mu       sync.Mutex
	reserved map[types.UID]place
}

type place struct {
	session, environment types.NamespacedName
	requester            string
}

func newPlaces() *places { return &places{reserved: map[types.UID]place{}} }

// admit lets a session into its environment if there is room, for as many as come before it too. sessions are those of the
// environment that have not ended.
func (p *places) admit(env *v1alpha1.ExecutionEnvironment, session *v1alpha1.ToolSession, sessions []v1alpha1.ToolSession) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := client.ObjectKeyFromObject(env)
	holders := map[types.UID]string{}
	for uid, one := range p.reserved {
		if one.environment == in {
			holders[uid] = one.requester
		}
	}
	var waiting []*v1alpha1.ToolSession
	for i := range sessions {
		switch other := &sessions[i]; {
		case holdsPlace(other):
			holders[other.UID] = requesterOf(other)
		case other.UID != session.UID && isWaiting(other) && other.DeletionTimestamp == nil && isBefore(other, session):
			waiting = append(waiting, other)
		}
	}
	if _, has := holders[session.UID]; has {
		return true
	}
	slices.SortFunc(waiting, func(a, b *v1alpha1.ToolSession) int { return compare(a, b) })
	for _, other := range append(waiting, session) {
		if _, has := holders[other.UID]; has || !hasRoom(env.Spec.Sessions, holders, requesterOf(other)) {
			continue
		}
		holders[other.UID] = requesterOf(other)
		if other == session {
			p.reserved[session.UID] = place{client.ObjectKeyFromObject(session), in, requesterOf(session)}
			return true
		}
	}
	return false
}

// hasRoom says whether another session of a requester may have a pod.
func hasRoom(limits *v1alpha1.SessionLimits, holders map[types.UID]string, requester string) bool {
	own := 0
	for _, other := range holders {
		if other == requester {
			own++
		}
	}
	return (limits.Max == nil || len(holders) < int(*limits.Max)) && (limits.MaxPerCaller == nil || own < int(*limits.MaxPerCaller))
}

// release gives a session's place back.
func (p *places) release(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.reserved, uid)
}

// releaseOthers gives the places back of the sessions of a name that are gone, all but the one with a UID.
func (p *places) releaseOthers(session types.NamespacedName, except types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, one := range p.reserved {
		if one.session == session && uid != except {
			delete(p.reserved, uid)
		}
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

// maxWoken bounds how many waiting sessions one free place has looked at. The others look again by themselves.
const maxWoken = 100

// waitingIn are the sessions that wait for an environment, the oldest first.
func (r *Reconciler) waitingIn(ctx context.Context, env client.Object) []reconcile.Request {
	return r.waiting(ctx, client.ObjectKeyFromObject(env))
}

func (r *Reconciler) waiting(ctx context.Context, env types.NamespacedName) []reconcile.Request {
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
	for _, session := range waiting[:min(len(waiting), maxWoken)] {
		names = append(names, client.ObjectKeyFromObject(session))
	}
	return requests(names)
}

// onPlaces has the sessions looked at that wait for the place of one that has none any more.
func (r *Reconciler) onPlaces() handler.EventHandler {
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
