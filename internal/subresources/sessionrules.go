package subresources

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/decide"
)

// Origins knows what a session began with; nil before that, and after its end.
type Origins interface {
	Origin(ctx context.Context, session *v1alpha1.ToolSession) (*decide.Origin, error)
}

// sessionRules decides what a user may do in a session: what a call could of that user, now. It fails closed.
type sessionRules struct {
	objects    apicache.Reader
	origins    Origins
	requesters *access.Requesters
	reviews    *access.Reviews
}

// get reads a session as it is now.
func (s *sessionRules) get(ctx context.Context, name types.NamespacedName) (*v1alpha1.ToolSession, error) {
	session := &v1alpha1.ToolSession{}
	err := s.objects.Live.Get(ctx, name, session)
	switch {
	case apierrors.IsNotFound(err):
		return nil, apierrors.NewNotFound(sessionResource, name.Name)
	case apierrors.IsForbidden(err):
		return nil, statusError(http.StatusNotFound, metav1.StatusReasonNotFound, nil, "the operator doesn't work in namespace %q", name.Namespace)
	case err != nil:
		return nil, unavailable("get the session: %s", err.Error())
	}
	return session, nil
}

// snapshot is that of a call which the user would create in the session now.
func (s *sessionRules) snapshot(ctx context.Context, who user.Info, session *v1alpha1.ToolSession) (*decide.Snapshot, error) {
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: session.Namespace}}
	call.Spec.SessionRef = &v1alpha1.SessionReference{Name: session.Name, UID: string(session.UID)}
	call.Spec.RequestedBy = requesterOf(who)
	// The API server has authenticated the user.
	shot := &decide.Snapshot{Call: call, Requester: decide.Requester{Vouched: true}}
	shot.Session.Object = session
	var err error
	if shot.Session.Requester.Vouched, shot.Session.Requester.Missing, err = s.requesters.SessionVouched(ctx, session); err != nil {
		return nil, unavailable("whose session it is could not be checked: %s", err.Error())
	}
	if decide.SessionReviewNeeded(shot) {
		shot.Session.Use.Allowed, shot.Session.Use.Err = s.reviews.MayUseSession(ctx, call.Spec.RequestedBy, session.Namespace, session.Name)
	}
	return shot, nil
}

// checkUse says why the user may run no calls in the session.
func (s *sessionRules) checkUse(ctx context.Context, who user.Info, session *v1alpha1.ToolSession) error {
	shot, err := s.snapshot(ctx, who, session)
	if err != nil {
		return err
	}
	return refused(session, decide.CheckSession(shot))
}

// decide decides about what a call of the user in the session would do that has such a spec.
func (s *sessionRules) decide(ctx context.Context, who user.Info, session *v1alpha1.ToolSession, spec *v1alpha1.ToolCallSpec) (*decide.Decision, error) {
	shot, err := s.snapshot(ctx, who, session)
	if err != nil {
		return nil, err
	}
	own := *spec
	own.SessionRef, own.RequestedBy = shot.Call.Spec.SessionRef, shot.Call.Spec.RequestedBy
	shot.Call.Spec = own
	if err := decide.CheckSession(shot); err != nil {
		return nil, refused(session, err)
	}
	if err := s.readPlace(ctx, shot); err != nil {
		return nil, unavailable("what the session began with, or its policy, can't be read: %s", err.Error())
	}
	if tool, needed := decide.ReviewNeeded(shot); needed {
		shot.Access.Allowed, shot.Access.Err = s.reviews.MayUse(ctx, shot.Call.Spec.RequestedBy, session.Namespace, tool)
	}
	decision, err := decide.Decide(shot)
	return decision, refused(session, err)
}

// readPlace reads what the session began with, and the policy that holds now.
func (s *sessionRules) readPlace(ctx context.Context, shot *decide.Snapshot) (err error) {
	session := shot.Session.Object
	if shot.Session.Origin, err = s.origins.Origin(ctx, session); err != nil || shot.Session.Origin == nil {
		return err
	}
	began, env := shot.Session.Origin.Effective(), &v1alpha1.ExecutionEnvironment{}
	if began == nil {
		return errors.New("it began without an environment")
	}
	found, err := s.objects.Find(ctx, types.NamespacedName{Namespace: session.Namespace, Name: began.Name}, env)
	if err != nil {
		return err
	}
	if found && env.UID == began.UID {
		shot.Session.Current = env
	}
	shot.Policies, err = s.objects.Policies(ctx, shot.PolicyEnvironment())
	return err
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
