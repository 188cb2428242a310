package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
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
	// mayUse is whether the user has permission to use the tool, nil if that was not checked.
	mayUse *bool
	// policiesUnreadable is the error of reading the policies, nil if the user has permission.
	policiesUnreadable error

	// refusal says why the call would not run. It is nil if the call would run.
	refusal *decide.Refusal
	// unknown says why the result is unknown.
	unknown error
}

// evaluate takes a snapshot of what the person who asks has permission to read, and decides as the operator does. With --as, the
// call and its rights are those of the other user.
func evaluate(ctx context.Context, c *cluster, call *v1alpha1.ToolCall) (*evaluation, error) {
	v := &evaluation{call: call, snapshot: &decide.Snapshot{Call: call}}
	if err := dryRun(ctx, c, v.call); err != nil {
		return nil, err
	}
	v.action, _ = guards.Map(&v.call.Spec)
	v.snapshot.Requester.Vouched = v.call.Spec.RequestedBy != nil
	e := &evaluator{cluster: c, evaluation: v}
	for _, step := range []func(context.Context) error{e.readSession, e.readContext, e.readPolicies, e.beginSession, e.readAccess, e.decide} {
		err := step(ctx)
		var refusal *decide.Refusal
		var undecided *decide.Undecided
		switch {
		case errors.As(err, &refusal):
			v.refusal = refusal
			return v, nil
		case errors.Is(err, errUnreadable):
			v.unknown = err
			return v, nil
		case errors.As(err, &undecided):
			return nil, undecided.Cause
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

// readContext reads the environments and the skill. An object that doesn't exist stays nil: the decision says so.
func (e *evaluator) readContext(ctx context.Context) error {
	environmentRef, skillRef := e.references()
	if ref := environmentRef; ref != nil {
		env := &v1alpha1.ExecutionEnvironment{}
		exists, err := e.read(ctx, ref.Name, "get executionenvironments", env)
		if err != nil {
			return err
		}
		if exists {
			e.snapshot.Named = env
		}
	}
	if ref := skillRef; ref != nil {
		skill := &v1alpha1.Skill{}
		exists, err := e.read(ctx, ref.Name, "get skills", skill)
		if err != nil {
			return err
		}
		if exists {
			e.snapshot.Skill = skill
		}
	}
	environments := &v1alpha1.ExecutionEnvironmentList{}
	if err := e.asker.List(ctx, environments, client.InNamespace(e.namespace)); err != nil {
		return unreadable("list executionenvironments", err)
	}
	e.snapshot.Defaults = slices.DeleteFunc(environments.Items, func(env v1alpha1.ExecutionEnvironment) bool {
		return env.Annotations[v1alpha1.AnnotationDefaultEnvironment] != "true"
	})
	return e.takeContext()
}

// read reads an object that the call refers to, and reports whether it exists.
func (e *evaluator) read(ctx context.Context, name, action string, into client.Object) (exists bool, err error) {
	err = e.asker.Get(ctx, e.key(name), into)
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

// readPolicies reads the policies that can apply to the environment.
func (e *evaluator) readPolicies(ctx context.Context) (err error) {
	env := e.snapshot.Effective()
	if env == nil {
		return nil // The decision says why there is no environment.
	}
	e.snapshot.Policies, err = newPolicyReader(e.cluster).policies(ctx, env)
	if !apierrors.IsForbidden(err) {
		return err
	}
	e.policiesUnreadable = fmt.Errorf("%w: %w", errUnreadable, err)
	if refusal := e.refusalUnderAnyPolicy(); refusal != nil {
		return refusal
	}
	if may, err := e.cluster.mayUse(ctx, e.action.Tool()); err == nil {
		e.evaluation.mayUse = &may
	}
	return e.policiesUnreadable
}

// refusalUnderAnyPolicy returns why the call would not run, if that is the same for every policy.
func (e *evaluator) refusalUnderAnyPolicy() error {
	permissive := v1alpha1.ExecutionPolicy{Spec: v1alpha1.ExecutionPolicySpec{
		Access: v1alpha1.AccessOpen,
		Shell:  &v1alpha1.ShellPolicy{Enabled: ptr.To(true)},
		Code:   &v1alpha1.CodePolicy{Languages: []string{}, DeniedModules: []string{}, NetworkAccess: ptr.To(true)},
	}}
	trial := *e.snapshot
	trial.Policies = decide.Policies{Named: &permissive, Defaults: []v1alpha1.ExecutionPolicy{permissive}}
	_, err := decide.Decide(&trial)
	var refusal *decide.Refusal
	if !errors.As(err, &refusal) {
		return nil
	}
	context := refusal.Reason == v1alpha1.ReasonEnvironmentNotFound || refusal.Reason == v1alpha1.ReasonSkillNotFound ||
		decide.DuplicateDefault(e.snapshot.Defaults) != ""
	if !context && e.action != nil {
		return nil // The actual policy may deny the call for another reason.
	}
	return refusal
}

// readAccess checks the permission to use the tool, if the decision depends on it.
func (e *evaluator) readAccess(ctx context.Context) error {
	tool, needed := decide.ReviewNeeded(e.snapshot)
	if !needed || !e.snapshot.Requester.Vouched {
		return nil
	}
	may, err := e.cluster.mayUse(ctx, tool)
	if err != nil {
		return err
	}
	e.evaluation.mayUse, e.snapshot.Access.Allowed = &may, may
	return nil
}

// decide decides, and resolves the variables, except those of the image: only the pod knows them.
func (e *evaluator) decide(context.Context) error {
	decision, err := decide.Decide(e.snapshot)
	if err != nil {
		return err
	}
	var references []string
	for _, name := range decision.Plan.NeededRefs() {
		references = append(references, name+"=")
	}
	internal := func(name string) bool { return slices.Contains(references, name+"=") }
	e.resolved, err = envresolve.Resolve(&decision.Plan, references, internal)
	if err != nil {
		return decide.Refuse(v1alpha1.ReasonInvalidEnvironment, "%s", err.Error())
	}
	e.evaluation.decision = decision
	return nil
}

// mayUse asks the API server, as the operator does, whether the user has permission to use a tool.
func (c *cluster) mayUse(ctx context.Context, tool string) (bool, error) {
	may, err := c.askUse(ctx, "tools", tool)
	if err != nil {
		return false, fmt.Errorf("check the permission to use the tool %q: %w", tool, err)
	}
	return may, nil
}

// askUse asks the API server whether the user has the verb "use" on an object of the project.
func (c *cluster) askUse(ctx context.Context, resource, name string) (bool, error) {
	review, err := c.reviews.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: c.namespace, Verb: "use", Group: v1alpha1.GroupVersion.Group,
			Version: v1alpha1.GroupVersion.Version, Resource: resource, Name: name,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return decide.ReviewAnswer(&review.Status)
}
