package environments

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/plugin/cli"
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
func evaluate(ctx context.Context, c *cli.Cluster, call *v1alpha1.ToolCall) (*evaluation, error) {
	v := &evaluation{call: call, snapshot: &decide.Snapshot{Call: call}}
	admitted, err := c.DryRun().Create(ctx, call)
	if err != nil {
		return nil, err
	}
	admitted.DeepCopyInto(call)
	v.action, _ = guards.Map(&v.call.Spec)
	v.snapshot.Requester.Vouched = v.call.Spec.RequestedBy != nil
	e := &evaluator{Cluster: c, evaluation: v}
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
	*cli.Cluster
	*evaluation
}

// readContext reads the environments and the skill. An object that doesn't exist stays nil: the decision says so.
func (e *evaluator) readContext(ctx context.Context) error {
	environmentRef, skillRef := e.references()
	var err error
	if e.snapshot.Named, err = read(ctx, e, environmentRef, "get executionenvironments", &v1alpha1.ExecutionEnvironment{}); err != nil {
		return err
	}
	if e.snapshot.Skill, err = read(ctx, e, skillRef, "get skills", &v1alpha1.Skill{}); err != nil {
		return err
	}
	environments := &v1alpha1.ExecutionEnvironmentList{}
	if err := e.Asker.List(ctx, environments, client.InNamespace(e.Namespace)); err != nil {
		return unreadable("list executionenvironments", err)
	}
	e.snapshot.Defaults = slices.DeleteFunc(environments.Items, func(env v1alpha1.ExecutionEnvironment) bool {
		return env.Annotations[v1alpha1.AnnotationDefaultEnvironment] != "true"
	})
	return e.takeContext()
}

// read reads an object that the call refers to. It returns nil without an error if the call names none, or none exists.
func read[T client.Object](ctx context.Context, e *evaluator, ref *v1alpha1.LocalReference, action string, into T) (none T, err error) {
	if ref == nil {
		return none, nil
	}
	err = e.Asker.Get(ctx, e.Key(ref.Name), into)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return none, unreadable(action, err)
	}
	return into, nil
}

// unreadable marks the error of a read. A missing permission makes the result unknown; other errors end the command.
func unreadable(action string, err error) error {
	explained := cli.PermissionError(action, err)
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
	e.snapshot.Policies, err = newPolicyReader(e.Cluster).policies(ctx, env)
	if !apierrors.IsForbidden(err) {
		return err
	}
	e.policiesUnreadable = fmt.Errorf("%w: %w", errUnreadable, err)
	if refusal := e.refusalUnderAnyPolicy(); refusal != nil {
		return refusal
	}
	if may, err := e.Cluster.MayUse(ctx, e.action.Tool()); err == nil {
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
	may, err := e.Cluster.MayUse(ctx, tool)
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

// readSession reads the session that the call names, and says why the call can't run in it. A session that doesn't exist
// stays nil.
func (e *evaluator) readSession(ctx context.Context) error {
	ref := e.call.Spec.SessionRef
	if ref == nil {
		return nil
	}
	session, err := read(ctx, e, cli.Reference(ref.Name), "get toolsessions", &v1alpha1.ToolSession{})
	if err != nil {
		return err
	}
	if session != nil {
		e.snapshot.Session.Object = session
		e.snapshot.Session.Requester.Vouched = session.Spec.RequestedBy != nil
	}
	if decide.SessionReviewNeeded(e.snapshot) {
		if e.snapshot.Session.Use.Allowed, err = e.AskUse(ctx, "toolsessions", ref.Name); err != nil {
			return fmt.Errorf("check the permission to use the session %q: %w", ref.Name, err)
		}
	}
	return decide.CheckSession(e.snapshot)
}

// references are the environment and the skill that the call names, or that its session does.
func (e *evaluator) references() (environment, skill *v1alpha1.LocalReference) {
	if session := e.snapshot.Session.Object; session != nil {
		return session.Spec.EnvironmentRef, session.Spec.SkillRef
	}
	return e.call.Spec.EnvironmentRef, e.call.Spec.SkillRef
}

// takeContext has the call's session begin with what was read. What the session really began with, only the operator can
// read: the result is unknown if it was another environment.
func (e *evaluator) takeContext() error {
	session := e.snapshot.Session.Object
	if session == nil {
		return nil
	}
	e.snapshot.Session.Origin = &decide.Origin{Context: e.snapshot.Context, WorkingDir: session.Spec.WorkingDir, Env: session.Spec.Env}
	began, now := session.Status.Environment, e.snapshot.Effective()
	if began != nil && began.Name != "" && (now == nil || now.Name != began.Name) {
		return fmt.Errorf("%w: session %s began with environment %s, which is not the one that it would begin with now", errUnreadable, session.Name, began.Name)
	}
	e.snapshot.Session.Current = now
	return nil
}

// beginSession decides what the session began with, as far as that is the same as now.
func (e *evaluator) beginSession(context.Context) error {
	session := e.snapshot.Session.Object
	if session == nil {
		return nil
	}
	origin, err := decide.Begin(&decide.SessionSnapshot{Session: session, Context: e.snapshot.Context, Policies: e.snapshot.Policies})
	if err != nil {
		return err
	}
	e.snapshot.Session.Origin = origin
	return nil
}

// session is the session that the call would run in, and what the call would wait for.
func (v *evaluation) session() string {
	session := v.snapshot.Session.Object
	switch {
	case session == nil:
		return ""
	case session.Status.Phase == v1alpha1.SessionReady && !session.Spec.Suspend:
		return session.Name
	case session.Spec.Suspend:
		return session.Name + ", suspended: the call would wait"
	case session.Status.Phase == v1alpha1.SessionSuspended:
		return session.Name + ", suspended because it was idle: the call would resume it"
	default:
		return session.Name + ", starting: the call would wait"
	}
}
