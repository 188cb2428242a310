package toolsession

import (
	"fmt"
	"math"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// The functions of this file are pure: each makes the status that a session gets from what was observed, whole, and leaves
// the observation as it is.

// status begins a new status with what is known of the session by now. Every condition is there.
func (o *observation) status(phase v1alpha1.SessionPhase, reason, message string) *v1alpha1.ToolSessionStatus {
	message = bounds.Text(message, v1alpha1.MaxMessageBytes)
	s := o.session.Status.DeepCopy()
	s.ObservedGeneration = o.session.Generation
	if s.Phase != phase {
		o.count(s)
	}
	s.Phase, s.Reason, s.Message = phase, reason, message
	if s.Timings == nil {
		s.Timings = &v1alpha1.SessionTimingsStatus{}
	}
	if o.origin != nil && s.Environment == nil {
		s.Environment = o.origin.Resolved()
	}
	o.set(s, v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
	o.set(s, v1alpha1.ConditionEnded, metav1.ConditionFalse, v1alpha1.ReasonInProgress, "the session has not ended")
	return s
}

// set writes one condition, which became so now if its value or its reason was another before: waits are counted from then.
func (o *observation) set(s *v1alpha1.ToolSessionStatus, kind string, value metav1.ConditionStatus, reason, message string) {
	if before := meta.FindStatusCondition(s.Conditions, kind); before != nil && before.Status == value && before.Reason != reason {
		before.LastTransitionTime = metav1.NewTime(o.now)
	}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: message, ObservedGeneration: o.session.Generation, LastTransitionTime: metav1.NewTime(o.now),
	})
}

// count writes what is known of the calls, at a change of the phase.
func (o *observation) count(s *v1alpha1.ToolSessionStatus) {
	c := &v1alpha1.SessionCallsStatus{}
	if s.Calls != nil {
		*c = *s.Calls
	}
	held := 0
	if o.isBound() && o.runner != nil {
		load := o.runner.Load()
		held = load.Running()
		c.Ended = max(c.Ended, int32(o.runner.Taken()-held), int32(load.Ended))
	}
	c.Running, c.Queued = int32(held), int32(max(o.calls.total-held, 0))
	s.Calls = c
}

// pending says what the session waits for.
func (o *observation) pending(reason, message string) *v1alpha1.ToolSessionStatus {
	return o.status(v1alpha1.SessionPending, reason, message)
}

// starting says that the session has its Job, and whether that may start.
func (o *observation) starting(job *batchv1.Job) *v1alpha1.ToolSessionStatus {
	message := "the session's pod has not started"
	if jobspec.IsSuspended(job) {
		message = "the session's Job is suspended: it waits until its spec.suspend is false"
	}
	return o.startingWith(job, message)
}

// startingWith says what the pod of the session's Job waits for.
func (o *observation) startingWith(job *batchv1.Job, message string) *v1alpha1.ToolSessionStatus {
	s := o.pending(v1alpha1.ReasonSessionStarting, message)
	s.Job = job.Name
	return s
}

// unplaced says that nobody has the session, and that it gets a pod again. What it began with stays.
func unplaced(s *v1alpha1.ToolSessionStatus) *v1alpha1.ToolSessionStatus {
	s.Job, s.Pod, s.Node, s.Isolation = "", "", "", nil
	return s
}

// ready says which process takes the session's calls. It is replaced only after each of them has ended.
func (o *observation) ready(bound *v1alpha1.RunnerBinding, hello wire.Hello, job *batchv1.Job) *v1alpha1.ToolSessionStatus {
	s := o.serving()
	s.Runner, s.Job, s.Pod, s.Node = bound, job.Name, hello.Pod, hello.Node
	s.Isolation = isolationOf(hello.Support, o.origin.Effective())
	s.Incarnation++
	if s.Calls != nil {
		s.Calls.Ended = 0
	}
	if s.Timings.ReadyMilliseconds == nil {
		s.Timings.ReadyMilliseconds = ptr.To(max(o.now.Sub(o.created).Milliseconds(), 0))
		s.Timings.Path = host.PathOf(job)
	}
	return s
}

// isolationOf is what a runner found out before the first call, and what only the operator knows; nil when the runner
// doesn't say, or says what can't be.
func isolationOf(support *rules.Support, env *v1alpha1.ExecutionEnvironment) *v1alpha1.SessionIsolation {
	if support == nil || support.Self == nil || support.Self.Check() != nil {
		return nil
	}
	self := support.Self
	return &v1alpha1.SessionIsolation{
		User: int64(self.User), Seccomp: v1alpha1.SeccompMode(self.Seccomp), UserNamespace: self.UserNamespace,
		RuntimeClass: ptr.Deref(env.Spec.RuntimeClassName, ""), Network: v1alpha1.HeldNetworkPod,
		LandlockABI: landlockOf(support),
	}
}

// landlockOf is the version of Landlock in a domain of which each call runs; 0 where the node can't make one.
func landlockOf(support *rules.Support) int32 {
	if support.Missing(&rules.Rules{Beside: true}) != "" {
		return 0
	}
	return int32(min(support.LandlockABI, math.MaxInt32))
}

// serving says that the session's pod takes calls.
func (o *observation) serving() *v1alpha1.ToolSessionStatus {
	const message = "the session's pod takes calls"
	before := o.session.Status.Phase == v1alpha1.SessionReady
	s := o.status(v1alpha1.SessionReady, v1alpha1.ReasonReady, message)
	if before {
		// status has made it False for a moment.
		s.Conditions = o.session.Status.DeepCopy().Conditions
	}
	o.set(s, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, message)
	return s
}

// unheard says that the recorded runner isn't connected.
func (o *observation) unheard() *v1alpha1.ToolSessionStatus {
	return o.pending(v1alpha1.ReasonSessionStarting, fmt.Sprintf("pod %s isn't connected to the operator; calls wait until it is, or is known to be gone", o.session.Status.Pod))
}

// suspended says that the session gives its pod up, and keeps its claim.
func (o *observation) suspended(reason, message string) *v1alpha1.ToolSessionStatus {
	s := o.status(v1alpha1.SessionSuspended, reason, message)
	o.set(s, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSessionSuspended, message)
	return s
}

// ended is the end of a session.
func (o *observation) ended(reason, message string) *v1alpha1.ToolSessionStatus {
	s := o.status(v1alpha1.SessionEnded, reason, message)
	if s.Runner != nil {
		// What it began with isn't needed any more.
		s.Runner.Decision = ""
	}
	o.set(s, v1alpha1.ConditionEnded, metav1.ConditionTrue, reason, s.Message)
	return s
}

// failed is the end of a session whose pod can't be started. The message has the reason that a call would end with.
func (o *observation) failed(reason, message string) *v1alpha1.ToolSessionStatus {
	return o.ended(v1alpha1.ReasonStartFailed, reason+": "+message)
}

// HoldsPlace says that a session counts among those of its environment that have a pod.
func HoldsPlace(session *v1alpha1.ToolSession) bool {
	return session.Status.Job != "" && session.Status.Phase != v1alpha1.SessionEnded
}

// isWaiting says that a session waits for a place in its environment, or for the environment to be resumed.
func isWaiting(session *v1alpha1.ToolSession) bool {
	s := &session.Status
	return s.Phase == v1alpha1.SessionPending && (s.Reason == v1alpha1.ReasonTooManySessions || s.Reason == v1alpha1.ReasonEnvironmentSuspended)
}

// keepsClaim says that the session's claim outlives it.
func keepsClaim(session *v1alpha1.ToolSession) bool {
	return session.Spec.Workspace == nil || session.Spec.Workspace.Retain == v1alpha1.RetainKeep
}
