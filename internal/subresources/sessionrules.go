package subresources

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/snapshot"
)

// sessionRules decides what a user may do in a session: what a call could of that user, now. It fails closed.
type sessionRules struct {
	snapshots *snapshot.Reader
}

// get reads a session as it is now.
func (s *sessionRules) get(ctx context.Context, name types.NamespacedName) (*v1alpha1.ToolSession, error) {
	session := &v1alpha1.ToolSession{}
	if err := s.snapshots.Objects.Live.Get(ctx, name, session); err != nil {
		return nil, getFailed(err, sessionResource, "session", name)
	}
	return session, nil
}

// callIn is a call that the user would create in the session now.
func callIn(who user.Info, session *v1alpha1.ToolSession, spec v1alpha1.ToolCallSpec) *v1alpha1.ToolCall {
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: session.Namespace}, Spec: spec}
	call.Spec.SessionRef = &v1alpha1.SessionReference{Name: session.Name, UID: string(session.UID)}
	call.Spec.RequestedBy = access.RequesterOf(who)
	return call
}

// checkUse says why the user may run no calls in the session.
func (s *sessionRules) checkUse(ctx context.Context, who user.Info, session *v1alpha1.ToolSession) error {
	// The API server has authenticated the user.
	shot := &decide.Snapshot{Call: callIn(who, session, v1alpha1.ToolCallSpec{}), Requester: decide.Requester{Vouched: true}}
	if err := s.snapshots.Owner(ctx, shot, session); err != nil {
		return unavailable("whose session it is could not be checked: %s", err.Error())
	}
	s.snapshots.Ask(ctx, shot)
	return refused(session, decide.CheckSession(shot))
}

// decide decides about what a call of a user who may use the session would do that has such a spec. What a person has to approve is
// refused: nobody is asked about a request.
func (s *sessionRules) decide(ctx context.Context, who user.Info, session *v1alpha1.ToolSession, spec *v1alpha1.ToolCallSpec) (*decide.Decision, error) {
	shot, err := s.snapshots.Place(ctx, callIn(who, session, *spec), session)
	if err == nil {
		err = s.snapshots.Rules(ctx, shot)
	}
	if err != nil {
		return nil, unavailable("what the session began with, or its policy, can't be read: %s", err.Error())
	}
	shot.Requester.Vouched = true
	s.snapshots.Ask(ctx, shot)
	decision, err := s.snapshots.Decide(ctx, shot)
	if err == nil && decision.Approval != nil {
		return nil, needsApproval(session, spec)
	}
	return decision, refused(session, err)
}

// needsApproval is what a client is told of a request that the policy has a person approve.
func needsApproval(session *v1alpha1.ToolSession, spec *v1alpha1.ToolCallSpec) error {
	instead := "nobody can approve what is typed into a call: create a ToolCall that has the input in spec.stdin"
	if spec.File != nil {
		instead = "a person has to approve this by the policy: create a ToolCall with a file action in place of the transfer"
	}
	return apierrors.NewForbidden(sessionResource, session.Name, errors.New(instead))
}

// refused is what a client is told when a call would be refused; nil stays nil.
func refused(session *v1alpha1.ToolSession, err error) error {
	var refusal *decide.Refusal
	var open *decide.Undecided
	switch {
	case err == nil:
		return nil
	case errors.As(err, &open) && errors.Is(open, decide.ErrNotBegun):
		return conflict(session.Name, "%s", open.Error())
	case !errors.As(err, &refusal):
		return unavailable("%s", err.Error())
	case refusal.Reason == v1alpha1.ReasonSessionNotFound:
		return apierrors.NewNotFound(sessionResource, session.Name)
	case refusal.Reason == v1alpha1.ReasonInvalidArguments:
		return badRequest("%s", refusal.Message)
	case refusal.Denied:
		return apierrors.NewForbidden(sessionResource, session.Name, fmt.Errorf("%s: %s", refusal.Reason, refusal.Message))
	default:
		return conflict(session.Name, "%s: %s", refusal.Reason, refusal.Message)
	}
}

func conflict(name, format string, args ...any) error {
	return apierrors.NewConflict(sessionResource, name, fmt.Errorf(format, args...))
}
