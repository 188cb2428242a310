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
	where  decide.Where
	// policy in force; nil for the built-in defaults, and when it is unknown.
	policy   *v1alpha1.ExecutionPolicy
	compiled *guards.Policy
	argv     []string
	plan     envresolve.Plan
	resolved envresolve.Resolved
	mayUse   *bool

	// refusal says why the call would not run. It is nil if the call would run.
	refusal *decide.Refusal
	// unknown says why the result is unknown.
	unknown error
}

// evaluate applies the operator's steps to what the user has permission to read.
func evaluate(ctx context.Context, c *cluster, call *v1alpha1.ToolCall) (*evaluation, error) {
	v := &evaluation{call: call}
	if err := dryRun(ctx, c, v.call); err != nil {
		return nil, err
	}
	e := &evaluator{cluster: c, evaluation: v}
	for _, step := range []func(context.Context) error{e.findContext, e.findPolicy, e.checkGuards, e.makePlan} {
		err := step(ctx)
		var refusal *decide.Refusal
		switch {
		case errors.As(err, &refusal):
			v.refusal = refusal
			return v, nil
		case errors.Is(err, errUnreadable):
			v.unknown = err
			return v, nil
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

func (f *evaluator) findContext(ctx context.Context) (err error) {
	f.action, _ = guards.Map(&f.call.Spec)
	f.where.Trusted = f.call.Spec.Trusted && f.call.Spec.RequestedBy != nil
	if ref := f.call.Spec.EnvironmentRef; ref != nil {
		f.where.Named = &v1alpha1.ExecutionEnvironment{}
		if err := f.find(ctx, ref.Name, f.where.Named, v1alpha1.ReasonEnvironmentNotFound); err != nil {
			f.where.Named = nil
			return err
		}
	}
	if ref := f.call.Spec.SkillRef; ref != nil {
		f.where.Skill = &v1alpha1.Skill{}
		if err := f.find(ctx, ref.Name, f.where.Skill, v1alpha1.ReasonSkillNotFound); err != nil {
			return err
		}
	}
	environments := &v1alpha1.ExecutionEnvironmentList{}
	if err := f.client.List(ctx, environments, client.InNamespace(f.namespace)); err != nil {
		return unreadable("list executionenvironments", err)
	}
	marked := slices.DeleteFunc(environments.Items, func(e v1alpha1.ExecutionEnvironment) bool {
		return e.Annotations[v1alpha1.AnnotationDefaultEnvironment] != "true"
	})
	if f.where.Default, err = decide.DefaultEnvironment(marked); err != nil {
		return err
	}
	if f.where.Effective() == nil {
		return decide.NoEnvironment(f.namespace)
	}
	return nil
}

// find reads an object that the call refers to.
func (f *evaluator) find(ctx context.Context, name string, into client.Object, reason string) error {
	kind, action := "ExecutionEnvironment", "get executionenvironments"
	if _, ok := into.(*v1alpha1.Skill); ok {
		kind, action = "Skill", "get skills"
	}
	err := f.client.Get(ctx, f.key(name), into)
	if apierrors.IsNotFound(err) {
		return decide.NotThere(reason, kind, name, f.namespace)
	}
	if err != nil {
		return unreadable(action, err)
	}
	return nil
}

// unreadable marks the error of a read. A missing permission makes the result unknown; other errors end the command.
func unreadable(action string, err error) error {
	explained := permissionError(action, err)
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: %w", errUnreadable, explained)
	}
	return explained
}

func (f *evaluator) findPolicy(ctx context.Context) (err error) {
	f.policy, err = newPolicyReader(f.cluster).policyFor(ctx, f.where.Effective())
	switch {
	case errors.Is(err, decide.ErrPolicy):
		return decide.Refuse(v1alpha1.ReasonInvalidPolicy, "%s", err.Error())
	case apierrors.IsForbidden(err) && f.action == nil:
		return nil // Every policy denies a call that can't be mapped to an action.
	case apierrors.IsForbidden(err):
		f.checkAccess(ctx)
		return fmt.Errorf("%w: %w", errUnreadable, err)
	case err != nil:
		return err
	}
	var spec *v1alpha1.ExecutionPolicySpec
	if f.policy != nil {
		spec = &f.policy.Spec
	}
	if f.compiled, err = guards.Compile(spec); err != nil {
		return decide.NotCompiled(err)
	}
	return nil
}

func (f *evaluator) checkGuards(ctx context.Context) error {
	action, unmapped := guards.Map(&f.call.Spec)
	if unmapped != nil {
		return decide.Denied(unmapped)
	}
	var unanswered error
	denial := f.compiled.Check(guards.Input{
		Action: action,
		Env:    f.call.Spec.Env,
		Caller: f.call.Spec.RequestedBy,
		MayUse: func(tool string) (may bool, err error) {
			may, unanswered = f.cluster.mayUse(ctx, tool)
			f.evaluation.mayUse = &may
			return may, unanswered
		},
		Shell: f.where.Effective().Spec.Shell,
	})
	switch {
	case unanswered != nil:
		return unanswered
	case denial != nil:
		return decide.Denied(denial)
	default:
		return nil
	}
}

// checkAccess asks for the permission to use the tool where the rest is unknown.
func (f *evaluator) checkAccess(ctx context.Context) {
	if may, err := f.cluster.mayUse(ctx, f.action.Tool()); err == nil {
		f.evaluation.mayUse = &may
	}
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
	may, err := decide.MayUse(&review.Status)
	if err != nil {
		return false, fmt.Errorf("check the permission to use the tool %q: %w", tool, err)
	}
	return may, nil
}

// makePlan resolves the variables, except those of the image: only the pod knows them.
func (f *evaluator) makePlan(context.Context) (err error) {
	if f.argv, err = decide.ArgvPrefix(&f.where.Effective().Spec, f.action); err != nil {
		return err
	}
	var references []string
	f.plan, _ = f.where.Plan(f.call, f.compiled)
	for _, name := range f.plan.NeededRefs() {
		references = append(references, name+"=")
	}
	internal := func(name string) bool { return slices.Contains(references, name+"=") }
	f.resolved, err = envresolve.Resolve(&f.plan, references, internal)
	if err != nil {
		return decide.Refuse(v1alpha1.ReasonInvalidEnvironment, "%s", err.Error())
	}
	return nil
}
