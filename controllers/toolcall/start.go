package toolcall

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
)

// bind records the runner of the call's own Job.
func (r *Reconciler) bind(ctx context.Context, o *observation) (effects, error) {
	hello := o.runner.Hello()
	pod, err := r.Objects.PodByUID(ctx, types.NamespacedName{Namespace: o.call.Namespace, Name: hello.Pod}, hello.PodUID)
	if err != nil {
		return effects{}, err
	}
	if pod == nil || !host.IsRunnerOf(o.runner, pod) || !host.IsPodOf(pod, o.job) {
		e, err := r.watchStart(ctx, o)
		e.messages = append(e.messages, message{to: o.runner, refuse: "the pod is not one of this call's Job"})
		return e, err
	}
	held, err := r.isHeld(ctx, o)
	if err != nil || held {
		return effects{status: o.suspended(o.decision.Environment), hello: &hello}, err
	}
	whole, err := r.Objects.Whole(ctx, o.call)
	if err != nil {
		return effects{}, err
	}
	e, err := r.bindTo(ctx, o.withAction(whole), whole, o.job, o.runner)
	e.hello = &hello
	return e, err
}

// isHeld says that the call's environment was suspended after the call got its Job.
func (r *observer) isHeld(ctx context.Context, o *observation) (bool, error) {
	env := &v1alpha1.ExecutionEnvironment{}
	err := r.Objects.Get(ctx, types.NamespacedName{Namespace: o.call.Namespace, Name: o.decision.Environment}, env)
	return err == nil && env.Spec.Suspend, client.IgnoreNotFound(err)
}

// watchStart looks after a call whose runner has not said hello: it ends the call when that can't happen any more, and
// at the latest when its time is up.
func (r *Reconciler) watchStart(ctx context.Context, o *observation) (effects, error) {
	e, err := r.lookAtStart(ctx, o)
	e.holds = o.decision.Environment
	return e, err
}

func (r *Reconciler) lookAtStart(ctx context.Context, o *observation) (effects, error) {
	isSuspended, left := jobspec.IsSuspended(o.job), o.decision.Accepted().Add(acceptWait).Sub(o.now)
	if left > 0 && !isSuspended && o.call.Status.Job == "" && len(o.call.Status.Conditions) == 0 {
		if starts, err := host.MayStart(ctx, r.Objects, o.job); err != nil || starts {
			return effects{wake: left}, err
		}
	}
	found, again, err := host.Diagnose(ctx, r.Objects, o.job, o.now)
	if err != nil {
		return effects{}, err
	}
	if o, err = r.withItsAction(ctx, o); err != nil {
		return effects{}, err
	}
	e := effects{decided: o, status: o.accepted()}
	if o.call.Status.Job == "" {
		// The pass that made the Job may have been cut short: its pod may still wait for the credential.
		e.credential = o.job
	}
	switch {
	case !isSuspended:
		return r.watchPod(ctx, o, e, found, again)
	case found != nil:
		return o.cannotStart(found), nil
	default:
		// No time limit runs meanwhile: only the Job's end ends the call, or its cancellation.
		return e, nil
	}
}

// watchPod looks at what keeps the pod from starting. While the environment is suspended no time limit runs.
func (r *Reconciler) watchPod(ctx context.Context, o *observation, e effects, found *host.Problem, again time.Duration) (effects, error) {
	held, err := r.isHeld(ctx, o)
	if err != nil {
		return effects{}, err
	}
	if found != nil && found.NoCredential {
		e.credential, found = o.job, nil
		if c := meta.FindStatusCondition(o.call.Status.Conditions, v1alpha1.ConditionStarted); c != nil && c.Reason == v1alpha1.ReasonNotStarted {
			// What kept the operator from making it.
			found = &host.Problem{Reason: v1alpha1.ReasonStartTimeout, Message: c.Message}
		}
	}
	deadline := o.heardUntil(o.startsFrom().Add(o.decision.StartTimeout()))
	switch {
	case jobspec.HasEnded(o.job) && jobspec.EndsBefore(o.job, o.heardUntil(time.Time{})):
		// Nobody could hear its runner before that deadline: the call gets another Job.
		status := o.pending(v1alpha1.ReasonNotStarted, "the Job's deadline passed while no operator was there; the call gets another")
		return effects{status: status, remove: []*batchv1.Job{o.job}, wake: apicache.Lag}, nil
	case held && found != nil && found.Final && jobspec.EndsBefore(o.job, o.now):
		// No time limit runs while the environment is suspended, but the Job's own, which has ended the pod: the call gets another Job.
		return effects{status: o.suspended(o.decision.Environment), remove: host.Deletable(o.job), wake: apicache.Lag}, nil
	case found != nil && found.Final:
		e = o.cannotStart(found)
		e.problem = found
		return e, nil
	case held:
		e.status = o.suspended(o.decision.Environment)
		return e, nil
	case !o.now.Before(deadline):
		return o.cannotStart(host.StartTimeout("the command", o.decision.StartTimeoutSeconds, found)), nil
	}
	e.wake = deadline.Sub(o.now)
	if found != nil && found.Reason != v1alpha1.ReasonStartTimeout {
		e.status = o.notStarted(found.Reason, found.Message)
	}
	if again > 0 {
		e.wakeIn(again)
	}
	return e, nil
}

func (o *observation) cannotStart(why *host.Problem) effects {
	return effects{status: o.fail(why.Reason, why.Message), remove: []*batchv1.Job{o.job}}
}
