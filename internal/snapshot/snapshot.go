// Package snapshot reads what a decision about a call depends on: the environments, the skill or the session, the policies that may
// apply, whether admission vouches for the requester, and what the authorizer says about that user.
//
// The controller of calls, the reviews and the rules of sessions' files share it, so that all of them decide from the same reading
// and with the same function. It reads and asks; package decide decides. Nothing is written. An object that doesn't exist isn't an
// error: the decision says what it means.
package snapshot

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/decide"
)

// Origins knows what a session began with; nil before that, and after its end.
type Origins interface {
	Origin(ctx context.Context, session *v1alpha1.ToolSession) (*decide.Origin, error)
}

// Sources are what snapshots are read from.
type Sources struct {
	Objects apicache.Reader
	// Policies keeps policies compiled.
	Policies *apicache.Compiled
	// Requesters vouches for the creators of calls and sessions, Reviews asks what they may use.
	Requesters *access.Requesters
	Reviews    *access.Reviews
	Origins    Origins
}

// Reader reads snapshots. Make it with New.
type Reader struct {
	Sources
	// large bounds how many large inputs are checked at the same time: parsing takes many times their size.
	large chan struct{}
}

// maxLarge is how many large inputs one reader checks at the same time.
const maxLarge = 2

// New makes a reader.
func New(sources Sources) *Reader { return &Reader{sources, make(chan struct{}, maxLarge)} }

// Place begins the snapshot of a call with where it would run: the environments and the skill, or the session, which is nil when there
// is none of the name.
func (r *Reader) Place(ctx context.Context, call *v1alpha1.ToolCall, session *v1alpha1.ToolSession) (*decide.Snapshot, error) {
	s := &decide.Snapshot{Call: call, Compile: r.Policies.Compile}
	if call.Spec.SessionRef != nil {
		return s, r.readSession(ctx, s, session)
	}
	var err error
	s.Context, err = readContext(ctx, r.Objects, call.Namespace, call.Spec.EnvironmentRef, call.Spec.SkillRef)
	return s, err
}

// Beginning reads what a session begins with, but for the policies.
func Beginning(ctx context.Context, objects apicache.Reader, session *v1alpha1.ToolSession, compile func(*v1alpha1.ExecutionPolicy) (*decide.Policy, error)) (*decide.SessionSnapshot, error) {
	whole, err := objects.WholeSession(ctx, session)
	if err != nil {
		return nil, err
	}
	s := &decide.SessionSnapshot{Session: whole, Compile: compile}
	s.Context, err = readContext(ctx, objects, whole.Namespace, whole.Spec.EnvironmentRef, whole.Spec.SkillRef)
	return s, err
}

// readContext reads what a call or a session names, and the namespace's default environments.
func readContext(ctx context.Context, objects apicache.Reader, namespace string, environment, skill *v1alpha1.LocalReference) (c decide.Context, err error) {
	if c.Named, err = find(ctx, objects, namespace, environment, &v1alpha1.ExecutionEnvironment{}); err != nil {
		return c, err
	}
	if c.Skill, err = find(ctx, objects, namespace, skill, &v1alpha1.Skill{}); err != nil {
		return c, err
	}
	c.Defaults, err = objects.DefaultEnvironments(ctx, namespace, c.Named == nil)
	return c, err
}

// find gets an object that is named; nil when none is, or there is none of the name.
func find[T client.Object](ctx context.Context, objects apicache.Reader, namespace string, ref *v1alpha1.LocalReference, into T) (none T, err error) {
	if ref == nil {
		return none, nil
	}
	found, err := objects.Find(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, into)
	if err != nil || !found {
		return none, err
	}
	return into, nil
}

// Owner reads who may run calls in the session; nil stands for none.
func (r *Reader) Owner(ctx context.Context, s *decide.Snapshot, session *v1alpha1.ToolSession) (err error) {
	if session == nil {
		return nil
	}
	s.Session.Object = session
	s.Session.Requester.Vouched, s.Session.Requester.Missing, err = r.Requesters.SessionVouched(ctx, session)
	return err
}

// readSession reads what the decision about a session's call depends on.
func (r *Reader) readSession(ctx context.Context, s *decide.Snapshot, session *v1alpha1.ToolSession) error {
	if session == nil {
		return nil
	}
	// Rules read the labels.
	session, err := r.Objects.LabelledSession(ctx, session)
	if err != nil {
		return err
	}
	if err := r.Owner(ctx, s, session); err != nil {
		return err
	}
	if s.Session.Origin, err = r.Origins.Origin(ctx, session); err != nil || s.Session.Origin == nil {
		return err
	}
	began, env := s.Session.Origin.Effective(), &v1alpha1.ExecutionEnvironment{}
	if began == nil {
		return errors.New("the session began without an environment")
	}
	found, err := r.Objects.Find(ctx, types.NamespacedName{Namespace: session.Namespace, Name: began.Name}, env)
	if err == nil && found && env.UID == began.UID {
		s.Session.Current = env
	}
	return err
}

// Begin has the snapshot's session, which hasn't begun, begin with what there is now, and under the snapshot's policies if it has some. The
// error can be a *decide.Refusal.
func (r *Reader) Begin(ctx context.Context, s *decide.Snapshot) error {
	beginning, err := Beginning(ctx, r.Objects, s.Session.Object, s.Compile)
	if err != nil {
		return err
	}
	s.Session.Current = beginning.Effective()
	beginning.Policies = s.Policies
	if isRead := s.Policies.Named != nil || s.Policies.Defaults != nil; s.Session.Current != nil && !isRead {
		if beginning.Policies, err = r.Objects.Policies(ctx, s.Session.Current); err != nil {
			return err
		}
	}
	s.Session.Origin, err = decide.Begin(beginning)
	return err
}

// Rules reads the policies that may apply where the snapshot's call would run.
func (r *Reader) Rules(ctx context.Context, s *decide.Snapshot) (err error) {
	if env := s.PolicyEnvironment(); env != nil {
		s.Policies, err = r.Objects.Policies(ctx, env)
	}
	return err
}

// Requester finds out whether admission vouches for the requester, and asks whether that user may use the tool. Where the policy asks for
// no review, or the call ends without one, none is made.
func (r *Reader) Requester(ctx context.Context, s *decide.Snapshot) (err error) {
	s.Requester.Vouched, s.Requester.Missing, err = r.Requesters.Vouched(ctx, s.Call)
	if err == nil && s.Requester.Vouched {
		r.Ask(ctx, s)
	}
	return err
}

// Ask asks whether the requester, whom somebody vouches for, may use the session and the tool, if the decision depends on it.
func (r *Reader) Ask(ctx context.Context, s *decide.Snapshot) {
	by, namespace := s.Call.Spec.RequestedBy, s.Call.Namespace
	if decide.SessionReviewNeeded(s) {
		s.Session.Use.Allowed, s.Session.Use.Err = r.Reviews.MayUseSession(ctx, by, namespace, s.Session.Object.Name)
	}
	if tool, needed := decide.ReviewNeeded(s); needed {
		s.Access.Allowed, s.Access.Err = r.Reviews.MayUse(ctx, by, namespace, tool)
	}
}

// Decide decides. The error is a *decide.Refusal, a *decide.Undecided, or the context's.
func (r *Reader) Decide(ctx context.Context, s *decide.Snapshot) (*decide.Decision, error) {
	release, err := r.AcquireLarge(ctx, s.Call)
	if err != nil {
		return nil, err
	}
	defer release()
	return decide.Decide(s)
}

// largeInput is how much input is checked at once with that of other calls, in bytes.
const largeInput = 16 << 10

// AcquireLarge waits until the call's input may be checked: only a few large ones are at the same time.
func (r *Reader) AcquireLarge(ctx context.Context, call *v1alpha1.ToolCall) (release func(), err error) {
	if apicache.InputBytes(call) <= largeInput {
		return func() {}, nil
	}
	select {
	case r.large <- struct{}{}:
		return func() { <-r.large }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
