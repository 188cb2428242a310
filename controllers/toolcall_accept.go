package controllers

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/jobspec"
)

// rejection ends a call before anything was made for it.
type rejection = decide.Refusal

// accept decides, once, whether the call may run, where and with what. What was decided is kept in the Job;
// a call that has one is past this.
func (r *ToolCallReconciler) accept(ctx context.Context, s *scope) (bool, error) {
	if s.record != nil || (s.bound() && !s.unassigned()) {
		return false, nil
	}
	if s.bound() {
		return r.decideAgain(ctx, s)
	}
	if s.job != nil {
		s.notOurs(s.job.Name)
		return true, nil
	}
	err := r.decide(ctx, s)
	var rejected *rejection
	var open *undecided
	switch {
	case errors.As(err, &rejected):
		s.rejected(rejected)
		return true, nil
	case errors.As(err, &open):
		s.undecided()
		s.wakeIn(open.again)
		return true, nil
	default:
		return err != nil, err
	}
}

// decideAgain serves a call whose waiting pod was recorded, and whose operator then ended before it could hand
// the call over or keep what was decided. The runner says that it has nothing yet, so that nothing started.
func (r *ToolCallReconciler) decideAgain(ctx context.Context, s *scope) (bool, error) {
	err := r.decide(ctx, s)
	var rejected *rejection
	var open *undecided
	switch {
	case errors.As(err, &rejected):
		session := s.session
		s.rejected(rejected)
		s.call.Status.RetrySafe = ptr.To(true)
		s.after(func(context.Context) error { session.Refuse("the call may not run any more"); return nil })
		return true, nil
	case errors.As(err, &open):
		s.wakeIn(open.again)
		return true, nil
	default:
		return err != nil, err
	}
}

func (r *ToolCallReconciler) decide(ctx context.Context, s *scope) error {
	action, unmapped := guards.Map(&s.call.Spec)
	if unmapped == nil {
		s.mapped(action)
	}
	where, err := r.whereabouts(ctx, s.call)
	if err != nil {
		return err
	}
	who, err := r.identify(ctx, s, where)
	if err != nil {
		return err
	}
	r.expectTurn(s, where.Effective())
	policy, err := r.policy(ctx, where.Effective())
	if err != nil {
		return err
	}
	if unmapped != nil {
		return decide.Denied(unmapped)
	}
	if err := r.check(ctx, s, action, inForce{where, policy, who}); err != nil {
		return err
	}
	prefix, err := decide.ArgvPrefix(&where.Effective().Spec, action)
	if err != nil {
		return err
	}
	s.environment, s.fallback = where.Effective(), where.Default
	plan, refs := where.Plan(s.call, policy)
	s.refs = refs
	s.record = &jobspec.Record{
		Environment:         where.Effective().Name,
		ArgvPrefix:          prefix,
		TimeoutMilliseconds: policy.Timeout(action).Milliseconds(),
		MaxBytesPerStream:   policy.MaxBytesPerStream(),
		DenyNetwork:         action.Type == v1alpha1.ActionCode && !action.Network,
		StartTimeoutSeconds: startTimeoutSeconds(where.Effective()),
		SeenMicroseconds:    s.seen.UnixMicro(),
		AcceptedMillis:      s.acceptedMillis(),
		Plan:                plan,
	}
	return nil
}

// acceptedMillis is when the call was first found to be allowed; it may have waited for its turn since.
func (s *scope) acceptedMillis() int64 {
	if t := s.call.Status.Timings; t != nil && t.AcceptedMilliseconds != nil {
		return *t.AcceptedMilliseconds
	}
	return *s.millis()
}

// policy finds and compiles what the environment's calls are held to.
func (r *ToolCallReconciler) policy(ctx context.Context, env *v1alpha1.ExecutionEnvironment) (*guards.Policy, error) {
	object, err := policyFor(ctx, r, env.Spec.PolicyName())
	if errors.Is(err, errPolicy) && env.Spec.PolicyName() != "" {
		// The cache may not have it yet.
		object, err = policyFor(ctx, r.Live, env.Spec.PolicyName())
	}
	if errors.Is(err, errPolicy) {
		return nil, decide.Refuse(v1alpha1.ReasonInvalidPolicy, "%s", err.Error())
	}
	if err != nil {
		return nil, err
	}
	policy, err := r.Policies.Compile(object)
	if err != nil {
		return nil, decide.NotCompiled(err)
	}
	return policy, nil
}

// inForce is what a call is held to.
type inForce struct {
	where  *decide.Where
	policy *guards.Policy
	who    creator
}

// creator is who made a call, as far as admission vouches for it.
type creator struct {
	caller *v1alpha1.Requester
	// missing is why it vouches for nobody.
	missing string
}

// identify finds out who created the call, and whether it may be trusted.
func (r *ToolCallReconciler) identify(ctx context.Context, s *scope, where *decide.Where) (creator, error) {
	known, missing, err := r.Callers.Known(ctx, s.call)
	if err != nil || !known {
		return creator{missing: missing}, err
	}
	s.caller = s.call.CallerName()
	where.Trusted = s.call.Spec.Trusted
	return creator{caller: s.call.Spec.RequestedBy}, nil
}

// check asks the guards, for the caller that admission vouches for.
func (r *ToolCallReconciler) check(ctx context.Context, s *scope, action *guards.Action, rules inForce) error {
	s.call.Status.Environment = &v1alpha1.ResolvedEnvironment{Name: rules.where.Effective().Name}
	var unanswered error
	caller := rules.who.caller
	denial := rules.policy.Check(guards.Input{
		Action: action,
		Env:    s.call.Spec.Env,
		Caller: caller,
		MayUse: func(tool string) (may bool, err error) {
			may, unanswered = r.Access.MayUse(ctx, caller, s.call.Namespace, tool)
			return may, unanswered
		},
		Shell: rules.where.Effective().Spec.Shell,
	})
	if unanswered != nil {
		ctrl.LoggerFrom(ctx).Error(unanswered, "A guard could not decide")
		if again := s.askAgain(rules.where.Effective(), unanswered); again != nil {
			return again
		}
	}
	switch {
	case denial != nil:
		return decide.Denied(unknownCaller(denial, rules.who.missing))
	default:
		return nil
	}
}

// unknownCaller adds why nobody is known to have created the call, where that is what it failed for.
func unknownCaller(denial *guards.Denial, missing string) *guards.Denial {
	if denial.Reason != v1alpha1.ReasonAgentNotAllowed || missing == "" {
		return denial
	}
	return &guards.Denial{Reason: denial.Reason, Message: denial.Message + ". The creator of this call is unknown, whatever its spec says, because an admission policy that sets it is missing: " + missing + ". Install config/admission and create the call again."}
}

// getOrReject reads an object that the user named.
func (r *ToolCallReconciler) getOrReject(ctx context.Context, namespace, name string, into client.Object, reason string) error {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	err := r.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		// The cache may not have it yet: often it was created a moment before the call.
		err = r.Live.Get(ctx, key, into)
	}
	if apierrors.IsNotFound(err) {
		return decide.NotThere(reason, kindOf(into), name, namespace)
	}
	if err != nil {
		return fmt.Errorf("get %s %s: %w", kindOf(into), name, err)
	}
	return nil
}

func kindOf(o client.Object) string {
	switch o.(type) {
	case *v1alpha1.Skill:
		return "Skill"
	default:
		return "ExecutionEnvironment"
	}
}
