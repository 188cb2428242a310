package toolcall

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/toolsession"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/queue"
)

// inSession is what a pass sees of the session that a call names.
type inSession struct {
	*toolsession.Serving
	name types.NamespacedName
	// handedOver says that the process which the session records may have the call, or one before that may have had it: how
	// the call ends, only that process can say, or that it is gone.
	handedOver bool
	// held is what the connected process has of the call; nil when it has none, or isn't connected.
	held *dispatch.HeldCall
	// orphaned says that the session which the call was handed over in, or may have been by an operator before this one, is gone.
	orphaned bool
	// sequence is the call's in the order of its session: that of its creation, also where somebody has written to it since.
	sequence int64
	// isInLine says that the operator knows the place of a call that wasn't handed over, isExcluded that the call has lost it, because
	// the session didn't take it, and ahead how many calls come before it.
	isInLine, isExcluded bool
	ahead                int
}

func sessionName(call *v1alpha1.ToolCall) types.NamespacedName {
	return types.NamespacedName{Namespace: call.Namespace, Name: call.Spec.SessionRef.Name}
}

// observeSession looks for the session that the call names, and for what its process has of the call.
func (r *observer) observeSession(ctx context.Context, o *observation) error {
	v := &inSession{name: sessionName(o.call)}
	o.session = v
	var err error
	if v.Serving, err = r.Sessions.Look(ctx, v.name, o.call.Spec.SessionRef.UID); err != nil {
		return err
	}
	place, isKnown := r.SessionQueue.Place(o.name, o.call.UID)
	if v.sequence = place.Sequence; !isKnown {
		v.sequence = positionOf(o.call, o.now).Sequence
	}
	r.observeProcess(o, place.HandedIn)
	if v.handedOver || o.call.Status.Phase.Terminal() {
		return nil
	}
	if v.isInLine, v.isExcluded = isKnown && place.HandedIn == "", place.IsExcluded; v.isInLine {
		o.created = place.FirstSeen
	}
	var session types.UID
	if v.Session != nil {
		session = v.Session.UID
	}
	v.ahead = r.SessionQueue.Ahead(o.name, session, v.hasArrived)
	return nil
}

// hasArrived says whether a call that was handed over is one that the session's process has, as far as that can be asked now.
func (v *inSession) hasArrived(call types.UID) bool {
	if v.Host == nil || !v.Host.IsServing() || v.Host.Runner == nil {
		return true
	}
	_, has := v.Host.Runner.HeldCall(string(call))
	return has
}

// observeProcess looks for the call among those of the process that the session records. handedIn is the session that this operator handed
// the call over in; empty for none.
func (r *observer) observeProcess(o *observation, handedIn types.UID) {
	v, uid := o.session, o.call.UID
	matches := v.Session != nil && (o.call.Spec.SessionRef.UID == "" || o.call.Spec.SessionRef.UID == string(v.Session.UID))
	switch {
	case handedIn != "" && (!matches || handedIn != v.Session.UID), !matches && (callSession(o.call).Incarnation > 0 || r.Earlier.Has(uid)):
		v.handedOver, v.orphaned = true, true
		return
	case v.Host == nil:
		return
	}
	v.handedOver = v.Host.MayHave(uid, r.Earlier)
	sealed := ""
	if v.Host.Runner != nil {
		if held, ok := v.Host.Runner.HeldCall(string(uid)); ok {
			v.held, sealed = &held, held.Decision
		}
	}
	if o.result = r.Hub.Result(v.Session.Status.Runner.KeyHash, string(uid)); o.result != nil {
		sealed = o.result.Decision
	}
	if decision, ok := jobspec.UnsealDecision(r.Identity, sealed, sessionSealContext(o.call, v.Session)...); ok {
		o.decision, o.created = decision, decision.Created()
	}
}

// sessionSealContext is where what was decided about a session's call counts: for this call, in this session.
func sessionSealContext(call *v1alpha1.ToolCall, session *v1alpha1.ToolSession) []string {
	return []string{"session call", call.Namespace, call.Name, string(call.UID), string(session.UID)}
}

// positionOf is a call's place in the order of its session. Calls that nobody has written to since their creation have resource
// versions in the order of their creation; those that wait keep theirs in the status.
func positionOf(call *v1alpha1.ToolCall, now time.Time) queue.Position {
	sequence := apicache.Revision(call.ResourceVersion)
	if s := call.Status.Session; s != nil && s.Sequence > 0 {
		sequence = s.Sequence
	}
	return queue.Position{UID: call.UID, Sequence: sequence, Background: call.Spec.Background, FirstSeen: firstSeen(call.CreationTimestamp.Time, now)}
}

// callSession is what a call's status says of its session.
func callSession(call *v1alpha1.ToolCall) v1alpha1.CallSessionStatus {
	return ptr.Deref(call.Status.Session, v1alpha1.CallSessionStatus{})
}

// runner is the connected process of the session, nil when there is none.
func (v *inSession) runner() *dispatch.Runner {
	if v.Host == nil {
		return nil
	}
	return v.Host.Runner
}

// waitsFor is what a call waits for that was not handed over; empty when its turn has come, or it can only end.
func (v *inSession) waitsFor(isBackground bool) (reason, message string) {
	switch {
	case v.Session == nil || !v.Session.TakesCalls():
		return "", ""
	case !v.TakesCalls:
		return v.Wait, v.Message
	}
	switch room := v.Host.Room(); {
	case v.ahead > 0:
		return v1alpha1.ReasonQueued, "the session's calls start in the order of their creation: the call waits for those before it"
	case isBackground && room.Background == 0:
		return v1alpha1.ReasonQueued, "the session has as many background calls as it may have: the call waits until one has ended"
	case !isBackground && room.Calls == 0:
		return v1alpha1.ReasonQueued, "the session runs as many calls as it may at the same time (maxConcurrentCalls): the call waits for its turn"
	default:
		return "", ""
	}
}

// isToldBy says that a call's status tells already that the call waits. A session that has got its pod by now is as good
// as one that runs other calls; that it is suspended, the caller has to know. A call that has left the line, because its end couldn't be
// written yet, waits for nothing.
func (v *inSession) isToldBy(call *v1alpha1.ToolCall) bool {
	reason, message := v.waitsFor(call.Spec.Background)
	c := meta.FindStatusCondition(call.Status.Conditions, v1alpha1.ConditionStarted)
	if reason == "" || !v.isInLine || v.isExcluded || c == nil || c.Status != metav1.ConditionFalse || call.Status.Session == nil {
		return false
	}
	switch c.Reason {
	case v1alpha1.ReasonSessionSuspended:
		return reason == v1alpha1.ReasonSessionSuspended
	case v1alpha1.ReasonSessionStarting:
		return reason == v1alpha1.ReasonQueued || reason == c.Reason && message == c.Message
	case v1alpha1.ReasonQueued:
		return reason != v1alpha1.ReasonSessionSuspended
	default:
		return false
	}
}

// setSession says where in its session the call ran, or waits.
func (s *draft) setSession() {
	o := s.o
	v := o.session
	if s.Session == nil {
		s.Session = &v1alpha1.CallSessionStatus{Name: v.name.Name, Sequence: v.sequence}
	}
	s.Timings.Path = v1alpha1.PathSession
	if !v.handedOver || v.orphaned || v.Session == nil {
		return
	}
	now := &v.Session.Status
	s.Session.Incarnation, s.Pod, s.Node = now.Incarnation, now.Pod, now.Node
	if s.Environment == nil && now.Environment != nil {
		s.Environment = &v1alpha1.ResolvedEnvironment{Name: now.Environment.Name}
	}
}

// setHandedOver says when the call was handed over.
func (s *draft) setHandedOver() {
	o := s.o
	at := o.now
	if o.decision != nil && o.decision.AssignedMicroseconds > 0 {
		at = o.decision.Assigned()
		s.Timings.StartedMilliseconds = millisecondsBetween(o.created, at)
	}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionStarted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAssigned, Message: "the call was given to its session's pod",
		ObservedGeneration: o.call.Generation, LastTransitionTime: metav1.NewTime(at),
	})
}

// runningInSession says that a call runs which hasn't ended soon.
func (o *observation) runningInSession() *v1alpha1.ToolCallStatus {
	s := o.draft()
	if o.decision != nil {
		s.setAccepted("the call may run")
	} else {
		s.set(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonGuardsPassed, "the call may run")
	}
	s.Phase = v1alpha1.PhaseRunning
	s.setSession()
	s.setHandedOver()
	return s.ToolCallStatus
}
