package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/guards"
)

// evaluation is what the operator would decide about a call, as far as the user can read what the decision needs.
type evaluation struct {
	// call as the API server would admit it, with its requester.
	call   *v1alpha1.ToolCall
	action *guards.Action
	// snapshot is what the decision depends on.
	snapshot *decide.Snapshot
	// decision is set if the call would run, with resolved as the variables that are known outside of the pod.
	decision *decide.Decision
	resolved envresolve.Resolved
	mayUse   *bool

	// refusal says why the call would not run. It is nil if the call would run.
	refusal *decide.Refusal
	// unknown says why the result is unknown.
	unknown error
}

// evaluate takes a snapshot of what the user has permission to read, and decides as the operator does.
func evaluate(ctx context.Context, c *cluster, call *v1alpha1.ToolCall) (*evaluation, error) {
	v := &evaluation{call: call, snapshot: &decide.Snapshot{Call: call}}
	if err := dryRun(ctx, c, v.call); err != nil {
		return nil, err
	}
	v.action, _ = guards.Map(&v.call.Spec)
	v.snapshot.Requester.Vouched = v.call.Spec.RequestedBy != nil
	e := &evaluator{cluster: c, evaluation: v}
	for _, step := range []func(context.Context) error{e.readContext, e.readPolicies, e.readAccess, e.decide} {
		err := step(ctx)
		var refusal *decide.Refusal
		var open *decide.Undecided
		switch {
		case errors.As(err, &refusal):
			v.refusal = refusal
			return v, nil
		case errors.Is(err, errUnreadable):
			v.unknown = err
			return v, nil
		case errors.As(err, &open):
			return nil, open.Cause
		case err != nil:
			return nil, err
		}
	}
	return v, nil
}

// evaluator fills in an evaluation.
type evaluator struct {
	*cluster
	*evaluation
}

func (f *evaluator) readContext(ctx context.Context) error {
	if ref := f.call.Spec.EnvironmentRef; ref != nil {
		env := &v1alpha1.ExecutionEnvironment{}
		found, err := f.find(ctx, ref.Name, "get executionenvironments", env)
		if err != nil {
			return err
		}
		if found {
			f.snapshot.Named = env
		}
	}
	if ref := f.call.Spec.SkillRef; ref != nil {
		skill := &v1alpha1.Skill{}
		found, err := f.find(ctx, ref.Name, "get skills", skill)
		if err != nil {
			return err
		}
		if found {
			f.snapshot.Skill = skill
		}
	}
	environments := &v1alpha1.ExecutionEnvironmentList{}
	if err := f.client.List(ctx, environments, client.InNamespace(f.namespace)); err != nil {
		return unreadable("list executionenvironments", err)
	}
	f.snapshot.Defaults = slices.DeleteFunc(environments.Items, func(e v1alpha1.ExecutionEnvironment) bool {
		return e.Annotations[v1alpha1.AnnotationDefaultEnvironment] != "true"
	})
	return nil
}

// find reads an object that the call refers to, and says whether there is one.
func (f *evaluator) find(ctx context.Context, name, action string, into client.Object) (bool, error) {
	err := f.client.Get(ctx, f.key(name), into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, unreadable(action, err)
	}
	return true, nil
}

// unreadable marks the error of a read. A missing permission makes the result unknown; other errors end the command.
func unreadable(action string, err error) error {
	explained := permissionError(action, err)
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: %w", errUnreadable, explained)
	}
	return explained
}

func (f *evaluator) readPolicies(ctx context.Context) (err error) {
	env := f.snapshot.Effective()
	if env == nil {
		return nil // The decision says why there is none.
	}
	f.snapshot.Policies, err = newPolicyReader(f.cluster).policies(ctx, env)
	if apierrors.IsForbidden(err) && f.action == nil {
		return nil // Every policy denies a call that can't be mapped to an action.
	}
	if apierrors.IsForbidden(err) {
		if may, err := f.cluster.mayUse(ctx, f.action.Tool()); err == nil {
			f.evaluation.mayUse = &may
		}
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return err
}

// readAccess asks for the permission to use the tool, where the decision depends on it.
func (f *evaluator) readAccess(ctx context.Context) error {
	tool, needed := decide.ReviewNeeded(f.snapshot)
	if !needed || !f.snapshot.Requester.Vouched {
		return nil
	}
	may, err := f.cluster.mayUse(ctx, tool)
	if err != nil {
		return err
	}
	f.evaluation.mayUse, f.snapshot.Access.Allowed = &may, may
	return nil
}

// decide decides, and resolves the variables, except those of the image: only the pod knows them.
func (f *evaluator) decide(context.Context) error {
	decision, err := decide.Decide(f.snapshot)
	if err != nil {
		return err
	}
	var references []string
	for _, name := range decision.Plan.NeededRefs() {
		references = append(references, name+"=")
	}
	internal := func(name string) bool { return slices.Contains(references, name+"=") }
	f.resolved, err = envresolve.Resolve(&decision.Plan, references, internal)
	if err != nil {
		return decide.Refuse(v1alpha1.ReasonInvalidEnvironment, "%s", err.Error())
	}
	f.decision = decision
	return nil
}

// mayUse asks the API server, as the operator does, whether the user has permission to use a tool.
func (c *cluster) mayUse(ctx context.Context, tool string) (bool, error) {
	review, err := c.reviews.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: c.namespace, Verb: "use", Group: v1alpha1.GroupVersion.Group,
			Version: v1alpha1.GroupVersion.Version, Resource: "tools", Name: tool,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("check the permission to use the tool %q: %w", tool, err)
	}
	may, err := decide.ReviewAnswer(&review.Status)
	if err != nil {
		return false, fmt.Errorf("check the permission to use the tool %q: %w", tool, err)
	}
	return may, nil
}
