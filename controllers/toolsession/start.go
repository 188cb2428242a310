package toolsession

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
)

// bind records the runner of the session's own Job.
func (r *Reconciler) bind(ctx context.Context, o *observation) (effects, error) {
	hello := o.runner.Hello()
	pod, err := r.Objects.PodByUID(ctx, types.NamespacedName{Namespace: o.session.Namespace, Name: hello.Pod}, hello.PodUID)
	if err != nil {
		return effects{}, err
	}
	if pod == nil || !host.IsRunnerOf(o.runner, pod) || !host.IsPodOf(pod, o.job) || !o.runner.IsWaiting() {
		e, err := r.watchStart(ctx, o)
		e.messages = append(e.messages, message{to: o.runner, refuse: "the pod is not one of this session's Job"})
		return e, err
	}
	return r.bindTo(ctx, o, o.job, o.runner)
}

// watchStart looks after a session whose runner has not said hello: it ends the session when that can't happen any more,
// and at the latest when its time is up.
func (r *Reconciler) watchStart(ctx context.Context, o *observation) (effects, error) {
	e := effects{hold: true, from: o, status: o.starting(o.job)}
	if o.session.Status.Job == "" {
		// The pass that made the Job may have been cut short: its pod may still wait for the credential.
		e.credential = o.job
	}
	found, again, err := host.Diagnose(ctx, r.Objects, o.job, o.now)
	if err != nil {
		return effects{}, err
	}
	if jobspec.IsSuspended(o.job) {
		// No time limit runs meanwhile.
		if found != nil {
			return o.cannotStart(found), nil
		}
		return e, nil
	}
	if found != nil && found.NoCredential {
		e.credential, found = o.job, nil
	}
	deadline := o.heardUntil(o.startsFrom().Add(o.startTimeout()))
	switch {
	case found != nil && found.Final:
		e := o.cannotStart(found)
		e.problem = found
		return e, nil
	case !o.now.Before(deadline):
		unbound, err := r.diagnoseClaim(ctx, o)
		if err != nil {
			return effects{}, err
		}
		return o.cannotStart(host.StartTimeout("the session's pod", decide.StartTimeoutSeconds(o.origin.Effective()), cmp.Or(unbound, found))), nil
	}
	e.wake = deadline.Sub(o.now)
	if found != nil {
		e.status = o.startingWith(o.job, found.Message)
	}
	if again > 0 {
		e.wakeIn(again)
	}
	return e, nil
}

// startsFrom is since when the session's pod could start: since its Job has been let run, and the session is said to start.
func (o *observation) startsFrom() time.Time {
	from := o.now
	if o.job != nil {
		from = jobspec.StartsFrom(o.job)
	}
	c := meta.FindStatusCondition(o.session.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Reason != v1alpha1.ReasonSessionStarting {
		return from
	}
	if o.job == nil || c.LastTransitionTime.After(from) {
		return c.LastTransitionTime.Time
	}
	return from
}

func (o *observation) cannotStart(why *host.Problem) effects {
	return o.noPod(why.Reason, why.Message, host.Deletable(o.job))
}
