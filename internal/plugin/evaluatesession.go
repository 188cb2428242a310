package plugin

import (
	"context"
	"fmt"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

// readSession reads the session that the call names, and says why the call can't run in it. A session that doesn't exist
// stays nil.
func (e *evaluator) readSession(ctx context.Context) error {
	ref := e.call.Spec.SessionRef
	if ref == nil {
		return nil
	}
	session := &v1alpha1.ToolSession{}
	exists, err := e.read(ctx, ref.Name, "get toolsessions", session)
	if err != nil {
		return err
	}
	if exists {
		e.snapshot.Session.Object = session
		e.snapshot.Session.Requester.Vouched = session.Spec.RequestedBy != nil
	}
	if decide.SessionReviewNeeded(e.snapshot) {
		if e.snapshot.Session.Use.Allowed, err = e.askUse(ctx, "toolsessions", ref.Name); err != nil {
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
