package toolcall

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/output"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/result"
)

// assign hands the command over to the runner that is recorded and has nothing: the connection broke on the way, or the
// operator ended. It is the same process, and that starts a command once.
func (r *Reconciler) assign(ctx context.Context, o *observation) (effects, error) {
	if o.decision == nil {
		return effects{
			status:   o.neverStarted(v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, "the operator can't read what was decided about the call, for example because the Secret of its identity was replaced; the command was not started: create the call again"),
			messages: []message{{to: o.runner, refuse: "the call can't be run any more"}},
			remove:   host.Deletable(o.job),
		}, nil
	}
	whole, err := r.Objects.Whole(ctx, o.call)
	if err != nil {
		return effects{}, err
	}
	assignment, err := r.assignment(ctx, o.decision, whole)
	if err != nil {
		return effects{}, err
	}
	e := o.adoptWhenDue()
	e.holds = environmentOf(o.call)
	e.messages = append(e.messages, message{to: o.runner, assign: assignment})
	return e, nil
}

// watchRun looks after a call whose command may have started.
func (r *Reconciler) watchRun(ctx context.Context, o *observation) (effects, error) {
	e := o.adoptWhenDue()
	e.holds, e.watchOutput = environmentOf(o.call), true
	if o.call.Spec.Cancel {
		o.stop(&e)
	}
	if o.runner == nil {
		return r.watchLost(ctx, o, e)
	}
	owner, _ := o.runner.Owner()
	_, has := o.runner.HeldCall(string(o.call.UID))
	switch {
	case owner.UID != string(o.call.UID):
		// One process takes one call: it took another, and never starts this one.
		return effects{status: o.neverStarted(v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, "the pod runs another call; the command was not started")}, nil
	case !has:
		return r.watchKnown(ctx, o)
	}
	// It keeps the call's time limit itself, and no clock of ours ends what is connected.
	return e, nil
}

// watchLost looks after a call whose runner isn't connected: when its pod has ended, what the pod left behind is all
// there is.
func (r *Reconciler) watchLost(ctx context.Context, o *observation, e effects) (effects, error) {
	pod, err := r.Objects.PodByUID(ctx, types.NamespacedName{Namespace: o.call.Namespace, Name: o.call.Status.Pod}, o.call.Status.Runner.PodUID)
	if err != nil {
		return effects{}, err
	}
	if deadline := o.heardUntil(o.runDeadline()); pod != nil && !host.HasPodEnded(pod) && o.now.Before(deadline) {
		e.wakeIn(deadline.Sub(o.now))
		return e, nil
	}
	specBytes, err := r.specBytes(ctx, o.call)
	if err != nil {
		return effects{}, err
	}
	e = effects{status: r.lost(o, pod, specBytes), remove: host.Deletable(o.job)}
	r.storeOutput(o, &e, true)
	return e, nil
}

// environmentOf is the name of the environment that the status says that the call runs in; empty when it says none.
func environmentOf(call *v1alpha1.ToolCall) string {
	return ptr.Deref(call.Status.Environment, v1alpha1.ResolvedEnvironment{}).Name
}

// stop has a started command stopped: by its runner, or by the kubelet where that doesn't connect in time.
func (o *observation) stop(e *effects) {
	if o.runner != nil {
		e.messages = append(e.messages, message{to: o.runner, stop: string(o.call.UID)})
		return
	}
	if left := o.heardUntil(time.Time{}).Sub(o.now); left > 0 {
		e.wakeIn(left)
		return
	}
	e.remove = host.Deletable(o.job)
}

// adoptWhenDue makes the Job of a waiting pod the call's own, and gives that of a call which started late its time.
func (o *observation) adoptWhenDue() effects {
	if o.job == nil || o.job.DeletionTimestamp != nil || jobspec.PoolOf(o.job) == "" && !o.startedLate(o.job) {
		return effects{}
	}
	if left := o.started().Add(adoptWait).Sub(o.now); left > 0 {
		return effects{wake: left}
	}
	return effects{adopt: o.job}
}

// specBytes is what the call takes without its status, encoded; 0 when the call is gone.
func (r *observer) specBytes(ctx context.Context, call *v1alpha1.ToolCall) (int, error) {
	whole, err := r.Objects.Whole(ctx, call)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return encodedSize(&v1alpha1.ToolCall{TypeMeta: whole.TypeMeta, ObjectMeta: whole.ObjectMeta, Spec: whole.Spec}), nil
}

// finish ends the call with what its runner, or its session's, reports, and acknowledges that once it is written. A runner that doesn't
// hear this sends the result again, and is answered when the call is finished.
func (r *Reconciler) finish(ctx context.Context, o *observation) (_ effects, err error) {
	if o.session != nil {
		if o, err = r.withItsAction(ctx, o); err != nil {
			return effects{}, err
		}
	}
	if err := o.result.Validate(); err != nil {
		return o.refuseResult(err), nil
	}
	e := effects{forgetResult: true, reported: metrics.ReportRecorded}
	if o.session.goesOn(&o.result.Outcome) {
		e.status, e.messages = o.waitsAgain(), o.acknowledge()
		return e, nil
	}
	specBytes, err := r.specBytes(ctx, o.call)
	if err != nil {
		return effects{}, err
	}
	reported, wait, err := r.explained(ctx, o)
	if err != nil || wait > 0 {
		return effects{wake: wait}, err
	}
	e.status = o.withResult(reported, specBytes)
	if left := r.storeOutput(o, &e, false); left > 0 {
		return effects{wake: left}, nil
	}
	e.messages = o.acknowledge()
	if o.session != nil {
		// Its output stays in the session's pod when it is acknowledged, and a session runs nothing while too many aren't.
		return e, nil
	}
	if isStoring := output.IsStoring(e.status); isStoring && o.runner != nil {
		e.messages = []message{{to: o.runner, record: string(o.call.UID)}}
	} else if !isStoring && e.status.Phase == v1alpha1.PhaseCancelled {
		e.remove = host.Deletable(o.job)
	}
	if o.job != nil && jobspec.PoolOf(o.job) != "" {
		e.adopt = o.job
	}
	return e, nil
}

// acknowledge tells the runner that its result is recorded, if it is connected.
func (o *observation) acknowledge() []message {
	runner := o.runner
	if o.session != nil {
		runner = o.session.runner()
	}
	if runner == nil {
		return nil
	}
	return []message{{to: runner, ack: string(o.call.UID)}}
}

// refuseResult is what follows from a result that isn't valid: a runner of one call is turned away, and a session's goes on.
func (o *observation) refuseResult(why error) effects {
	e := effects{forgetResult: true, reported: metrics.ReportRefused}
	switch {
	case o.session != nil:
		e.status = o.fail(v1alpha1.ReasonPodLost, "the result that the session's pod sent isn't valid: "+why.Error()+"; the command may have run")
		e.messages = o.acknowledge()
	case o.runner != nil:
		e.messages = []message{{to: o.runner, refuse: "the result isn't valid: " + why.Error()}}
	default:
		// Nothing else has the call looked at again: what its pod left behind counts now.
		e.wake = time.Millisecond
	}
	return e
}

// podEndWait is how long after a command's end the kubelet may take to say why it ended the pod.
const podEndWait = 3 * time.Second

// explained is what the runner reports, with the kubelet's word where all that the runner knows is that its pod ends. wait is when
// to look again, while that word may still come. Where the node's clock isn't ours, nothing waits for it.
func (r *observer) explained(ctx context.Context, o *observation) (reported *wire.Result, wait time.Duration, err error) {
	pod, bound := o.call.Status.Pod, o.call.Status.Runner
	if o.session != nil {
		pod, bound = o.session.Session.Status.Pod, o.session.Session.Status.Runner
	}
	switch reason := o.result.Outcome.Reason; {
	case o.session != nil && reason == result.SessionEnded && o.result.Outcome.Started:
		// The end of a session cancels what runs in it.
		cancelled := *o.result
		cancelled.Outcome.Reason = result.CancelRequested
		return &cancelled, 0, nil
	case reason != result.PodLost:
		return o.result, 0, nil
	}
	why, known, err := host.WhyEnded(ctx, r.Objects, types.NamespacedName{Namespace: o.call.Namespace, Name: pod}, bound.PodUID)
	if err != nil {
		return nil, 0, err
	}
	if left := o.result.Outcome.CompletionTime.Add(podEndWait).Sub(o.now); !known && left > 0 && left <= podEndWait {
		return nil, min(left, soonestRetry), nil
	}
	return withReason(o.result, why), 0, nil
}

// withReason is a result whose message says why the pod ended.
func withReason(reported *wire.Result, why string) *wire.Result {
	with := *reported
	with.Outcome.Message = host.Sentence(with.Outcome.Message, why, "")
	return &with
}

// lost ends a call whose pod is gone or overdue, with the copy of the result that the runner left in the pod if there is
// one, and otherwise without pretending to know.
func (r *observer) lost(o *observation, pod *corev1.Pod, specBytes int) *v1alpha1.ToolCallStatus {
	terminated := host.Terminated(pod)
	if terminated != nil {
		if left := r.terminationResult(o, pod, terminated.Message); left != nil {
			if left.Outcome.Reason == result.PodLost {
				left = withReason(left, host.SaidEnd(pod))
			}
			return o.withResult(left, specBytes)
		}
	}
	name := o.call.Status.Pod
	switch {
	case host.WasKilledForMemory(pod):
		return killedForMemory(o)
	case o.call.Spec.Cancel:
		return o.end(v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, "the call was cancelled and its pod removed; how far the command came is not known")
	case pod == nil:
		return o.fail(v1alpha1.ReasonPodLost, fmt.Sprintf("pod %s is gone and left no result; the command may have run", name))
	case host.HasPodEnded(pod):
		what := fmt.Sprintf("pod %s ended and left no result; the command may have run", name)
		return o.fail(v1alpha1.ReasonPodLost, host.Sentence(what, host.WhyPodEnded(pod), ""))
	default:
		return o.fail(v1alpha1.ReasonPodLost, fmt.Sprintf("pod %s was not heard of in time; the command may have run", name))
	}
}

// killedForMemory ends a call whose container the kernel killed.
func killedForMemory(o *observation) *v1alpha1.ToolCallStatus {
	s := o.fail(v1alpha1.ReasonOOMKilled, "the kernel killed the container for memory, the runner with it: raise resources.limits.memory of the environment")
	s.Signal = "SIGKILL"
	return s
}

// terminationResult reads the copy of the result that a runner leaves in its pod. Anything in the container can write
// there, so that only a copy counts that was made with the pod's token, which the command never sees.
// The Job itself may be gone by now.
func (r *observer) terminationResult(o *observation, pod *corev1.Pod, text string) *wire.Result {
	message, job := &wire.TerminationMessage{}, metav1.GetControllerOf(pod)
	if job == nil || job.Name != o.call.Status.Job || json.Unmarshal([]byte(text), message) != nil {
		return nil
	}
	token := r.Identity.Token(pod.Namespace, job.Name, string(job.UID))
	if !message.Verify(token, string(o.call.UID)) {
		return nil
	}
	outcome, err := result.DecodeTermination([]byte(message.Outcome))
	if err != nil || outcome.Validate() != nil {
		return nil
	}
	return &wire.Result{CallUID: string(o.call.UID), Outcome: *outcome, Environment: wire.Environment{WorkingDir: outcome.WorkingDir}}
}
