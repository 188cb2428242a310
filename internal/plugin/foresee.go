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

// verdict is what the operator would decide about a call, as far as the caller can know.
type verdict struct {
	// call as the API server would admit it, with who it would be from.
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

	// refusal is why the call wouldn't run, nil when it would.
	refusal *decide.Refusal
	// unknown is why it can't be told.
	unknown error
}

// foresee takes the operator's steps in its order, on what the caller may read.
func foresee(ctx context.Context, c *cluster, call *v1alpha1.ToolCall) (*verdict, error) {
	v := &verdict{call: call}
	if err := dryRun(ctx, c, v.call); err != nil {
		return nil, err
	}
	f := &foresight{cluster: c, verdict: v}
	for _, step := range []func(context.Context) error{f.findWhere, f.findPolicy, f.askGuards, f.makePlan} {
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

// foresight fills in a verdict.
type foresight struct {
	*cluster
	*verdict
}

func (f *foresight) findWhere(ctx context.Context) (err error) {
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

// find reads an object that the call names.
func (f *foresight) find(ctx context.Context, name string, into client.Object, reason string) error {
	kind, right := "ExecutionEnvironment", "get executionenvironments"
	if _, ok := into.(*v1alpha1.Skill); ok {
		kind, right = "Skill", "get skills"
	}
	err := f.client.Get(ctx, f.key(name), into)
	if apierrors.IsNotFound(err) {
		return decide.NotThere(reason, kind, name, f.namespace)
	}
	if err != nil {
		return unreadable(right, err)
	}
	return nil
}

// unreadable is an error about a read. A right that is missing makes the verdict unknown; other errors end it.
func unreadable(right string, err error) error {
	explained := rightError(right, err)
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: %w", errUnreadable, explained)
	}
	return explained
}

func (f *foresight) findPolicy(ctx context.Context) (err error) {
	f.policy, err = newPolicyReader(f.cluster).of(ctx, f.where.Effective())
	switch {
	case errors.Is(err, decide.ErrPolicy):
		return decide.Refuse(v1alpha1.ReasonInvalidPolicy, "%s", err.Error())
	case apierrors.IsForbidden(err) && f.action == nil:
		return nil // No policy lets a call through that can't be mapped.
	case apierrors.IsForbidden(err):
		f.askAccess(ctx)
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

func (f *foresight) askGuards(ctx context.Context) error {
	action, unmapped := guards.Map(&f.call.Spec)
	if unmapped != nil {
		return decide.Denied(unmapped)
	}
	var unanswered error
	denial := f.compiled.Check(guards.Input{
		Action: action,
		Env:    f.call.Spec.Env,
		Requester: f.call.Spec.RequestedBy,
		MayUse: func(tool string) (may bool, err error) {
			may, unanswered = f.cluster.mayUse(ctx, tool)
			f.verdict.mayUse = &may
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

// askAccess finds out about the right to use the tool where the rest can't be told.
func (f *foresight) askAccess(ctx context.Context) {
	if may, err := f.cluster.mayUse(ctx, f.action.Tool()); err == nil {
		f.verdict.mayUse = &may
	}
}

// mayUse asks the API server's authorizer, as the operator does, whether the caller may use a tool.
func (c *cluster) mayUse(ctx context.Context, tool string) (bool, error) {
	review, err := c.reviews.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: c.namespace, Verb: "use", Group: v1alpha1.GroupVersion.Group,
			Version: v1alpha1.GroupVersion.Version, Resource: "tools", Name: tool,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether you may use the tool %q: %w", tool, err)
	}
	may, err := decide.MayUse(&review.Status)
	if err != nil {
		return false, fmt.Errorf("ask whether you may use the tool %q: %w", tool, err)
	}
	return may, nil
}

// makePlan resolves the variables without the image's: only the pod knows those.
func (f *foresight) makePlan(context.Context) (err error) {
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
