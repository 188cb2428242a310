// Package review answers whether a call would run that nobody creates: a ToolCallReview.
//
// It reads what the controller of calls reads, by package snapshot, and decides with the same function, so that a call which is created a
// moment later is decided about alike. It fails closed: who may ask, for whom, and under which policy, the API server's authorizer says.
// It must not write, and an answer has the verdict and what holds for the call, not the policy.
package review

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	subresourcesv1alpha1 "toolcall.dev/operator/api/subresources/v1alpha1"
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/snapshot"
)

// Reviewer answers reviews.
type Reviewer struct {
	Snapshots  *snapshot.Reader
	Authorizer authorizer.Authorizer
	// Clock says when the reviewed call would have been created.
	Clock clock.PassiveClock
}

// Review answers what a user asks about a call in a namespace. Errors are those of the API machinery.
func (r *Reviewer) Review(ctx context.Context, who user.Info, namespace string, asked *subresourcesv1alpha1.ToolCallReviewSpec) (*subresourcesv1alpha1.ToolCallReviewStatus, error) {
	// First, so that nobody else's policy costs more than to read it.
	policy, err := r.policy(ctx, who, asked)
	if err != nil {
		return nil, err
	}
	subject, err := r.subject(ctx, who, asked.User)
	if err != nil {
		return nil, err
	}
	if err := r.checkCreate(ctx, subject, namespace, &asked.Call); err != nil {
		return nil, err
	}
	call := &v1alpha1.ToolCall{Spec: *asked.Call.DeepCopy()}
	call.Namespace, call.CreationTimestamp = namespace, metav1.NewTime(r.Clock.Now())
	call.Spec.RequestedBy, call.Spec.Cancel = access.RequesterOf(subject), false
	s, err := r.read(ctx, call, policy)
	var decision *decide.Decision
	if err == nil {
		decision, err = r.Snapshots.Decide(ctx, s)
	}
	return answer(s, decision, err)
}

// read takes the snapshot of a call; policy is what is applied in place of the policy that holds there, nil for nothing. The error can be
// a *decide.Refusal, with the snapshot as far as it was read.
func (r *Reviewer) read(ctx context.Context, call *v1alpha1.ToolCall, policy *v1alpha1.ExecutionPolicy) (*decide.Snapshot, error) {
	session, err := r.session(ctx, call)
	if err != nil {
		return nil, err
	}
	s, err := r.Snapshots.Place(ctx, call, session)
	if err != nil {
		return nil, err
	}
	if policy != nil {
		// Whatever the environment names. An inline policy has no name that it could be kept compiled by.
		s.Policies = decide.Policies{Named: policy, Defaults: []v1alpha1.ExecutionPolicy{*policy}}
		if policy.Name == "" {
			compiled, err := decide.CompilePolicy(policy)
			s.Compile = func(*v1alpha1.ExecutionPolicy) (*decide.Policy, error) { return compiled, err }
		}
	}
	if session != nil && s.Session.Origin == nil && session.Status.Runner == nil {
		// A session that is asleep or has yet to begin. Who may not use it learns nothing of what it would begin with.
		if err := r.Snapshots.Requester(ctx, s); err != nil {
			return nil, err
		}
		if err := decide.CheckSession(s); err != nil {
			return s, err
		}
		if err := r.Snapshots.Begin(ctx, s); err != nil {
			return s, err
		}
	}
	if policy == nil {
		if err := r.Snapshots.Rules(ctx, s); err != nil {
			return nil, err
		}
	}
	return s, r.Snapshots.Requester(ctx, s)
}

// session is the one that the call names; nil when it names none, or there is none of the name.
func (r *Reviewer) session(ctx context.Context, call *v1alpha1.ToolCall) (*v1alpha1.ToolSession, error) {
	ref := call.Spec.SessionRef
	if ref == nil {
		return nil, nil
	}
	session := &v1alpha1.ToolSession{}
	found, err := r.Snapshots.Objects.Find(ctx, types.NamespacedName{Namespace: call.Namespace, Name: ref.Name}, session)
	if err != nil || !found {
		return nil, err
	}
	return session, nil
}

// answer says what was decided.
func answer(s *decide.Snapshot, decision *decide.Decision, err error) (*subresourcesv1alpha1.ToolCallReviewStatus, error) {
	var refusal *decide.Refusal
	var open *decide.Undecided
	switch {
	case err == nil:
		return allowed(s, decision), nil
	case errors.As(err, &refusal):
		return refused(s, refusal), nil
	case errors.As(err, &open):
		status := describe(s)
		status.Undecided = open.Cause.Error()
		return status, nil
	default:
		return nil, unavailable("what the decision depends on can't be read: %s", err.Error())
	}
}

// policy is what is applied in place of the policy that holds there; nil for nothing.
func (r *Reviewer) policy(ctx context.Context, who user.Info, asked *subresourcesv1alpha1.ToolCallReviewSpec) (*v1alpha1.ExecutionPolicy, error) {
	switch name := asked.PolicyName; {
	case name != "" && asked.Policy != nil:
		return nil, apierrors.NewBadRequest("spec.policyName and spec.policy exclude each other: leave one of them out")
	case name != "":
		return r.namedPolicy(ctx, who, name)
	case asked.Policy != nil:
		if err := r.check(ctx, who, right{verb: "create", resource: policies}, "a review under an inline policy needs the right to create executionpolicies"); err != nil {
			return nil, err
		}
		return &v1alpha1.ExecutionPolicy{Spec: *asked.Policy.DeepCopy()}, nil
	default:
		return nil, nil
	}
}

// namedPolicy reads a policy for a user who may use it, or read it. Nobody else learns whether it is there.
func (r *Reviewer) namedPolicy(ctx context.Context, who user.Info, name string) (*v1alpha1.ExecutionPolicy, error) {
	const need = `a review under a named policy needs the verb "use" or "get" on that executionpolicy`
	if err := r.check(ctx, who, right{verb: "use", resource: policies, name: name}, need); err != nil {
		if !apierrors.IsForbidden(err) {
			return nil, err
		}
		if err := r.check(ctx, who, right{verb: "get", resource: policies, name: name}, need); err != nil {
			return nil, err
		}
	}
	policy := &v1alpha1.ExecutionPolicy{}
	found, err := r.Snapshots.Objects.Find(ctx, types.NamespacedName{Name: name}, policy)
	if err != nil {
		return nil, unavailable("get the policy: %s", err.Error())
	}
	if !found {
		return nil, apierrors.NewNotFound(policies, name)
	}
	return policy, nil
}
