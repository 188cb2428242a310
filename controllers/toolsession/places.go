package toolsession

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/trigger"
)

// hasPlace says whether an environment has room for a session, and for as many as come before it too. sessions are those of the
// environment that have not ended. A place is taken by the write of the status that says so: the caller lets nobody else in until then.
func hasPlace(env *v1alpha1.ExecutionEnvironment, session *v1alpha1.ToolSession, sessions []v1alpha1.ToolSession) bool {
	t := takenOf(env.Spec.Sessions, sessions)
	if !t.hasRoom(requesterOf(session)) {
		// Nobody is put in order: there may be thousands.
		return false
	}
	t.letIn(sessions, func(other *v1alpha1.ToolSession) bool { return isBefore(other, session) })
	return t.hasRoom(requesterOf(session))
}

// takenOf counts the places that sessions of an environment have.
func takenOf(limits *v1alpha1.SessionLimits, sessions []v1alpha1.ToolSession) *taken {
	t := &taken{limits: limits, by: map[string]int{}}
	for i := range sessions {
		if HoldsPlace(&sessions[i]) {
			t.take(requesterOf(&sessions[i]))
		}
	}
	return t
}

// letIn gives what is free to sessions that wait and may enter, in the order of their creation. It returns those that get a place.
func (t *taken) letIn(sessions []v1alpha1.ToolSession, mayEnter func(*v1alpha1.ToolSession) bool) (in []*v1alpha1.ToolSession) {
	var waiting []*v1alpha1.ToolSession
	for i := range sessions {
		s := &sessions[i]
		if isWaiting(s) && !HoldsPlace(s) && s.DeletionTimestamp == nil && mayEnter(s) && t.hasRoom(requesterOf(s)) {
			waiting = append(waiting, s)
		}
	}
	slices.SortFunc(waiting, compare)
	for _, s := range waiting {
		if t.hasRoom(requesterOf(s)) {
			t.take(requesterOf(s))
			in = append(in, s)
		}
	}
	return in
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
	if t.limits == nil {
		return true
	}
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

// seldom is about how often a session that waits for a place looks again that nobody wakes: there may be thousands, and each look goes
// through all.
const seldom = 5 * time.Minute

// waitingFor are all sessions that wait for an environment, whose settings have changed: each says what it waits for.
func (r *watches) waitingFor(ctx context.Context, env client.Object) []reconcile.Request {
	sessions, err := r.Objects.SessionsIn(ctx, client.ObjectKeyFromObject(env))
	if err != nil {
		return nil
	}
	var names []types.NamespacedName
	for i := range sessions {
		if isWaiting(&sessions[i]) {
			names = append(names, client.ObjectKeyFromObject(&sessions[i]))
		}
	}
	return requests(names)
}

// waitingIn are the sessions that wait for an environment and may have a place there now.
func (r *watches) waitingIn(ctx context.Context, o client.Object) []reconcile.Request {
	env := &v1alpha1.ExecutionEnvironment{}
	name := client.ObjectKeyFromObject(o)
	if client.IgnoreNotFound(r.Objects.Get(ctx, name, env, client.DisableReadYourWritesConsistency)) != nil {
		return nil
	}
	sessions, err := r.Objects.SessionsIn(ctx, name)
	if err != nil {
		return nil
	}
	var names []types.NamespacedName
	for _, session := range takenOf(env.Spec.Sessions, sessions).letIn(sessions, func(*v1alpha1.ToolSession) bool { return true }) {
		names = append(names, client.ObjectKeyFromObject(session))
	}
	return requests(names)
}

// onPlaces has the sessions looked at that may have the place of one that has none any more, or that doesn't wait for one before them.
func (r *watches) onPlaces() handler.EventHandler {
	left := func(ctx context.Context, session *v1alpha1.ToolSession, q trigger.Requests) {
		if session.Status.Environment == nil {
			return
		}
		env := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: session.Namespace, Name: session.Status.Environment.Name}}
		for _, request := range r.waitingIn(ctx, env) {
			q.Add(request)
		}
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q trigger.Requests) {
			before, ok := e.ObjectOld.(*v1alpha1.ToolSession)
			after, isSession := e.ObjectNew.(*v1alpha1.ToolSession)
			if ok && isSession && !HoldsPlace(after) && (HoldsPlace(before) || isWaiting(before) && !isWaiting(after)) {
				left(ctx, after, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q trigger.Requests) {
			if session, ok := e.Object.(*v1alpha1.ToolSession); ok && (HoldsPlace(session) || isWaiting(session)) {
				left(ctx, session, q)
			}
		},
	}
}
