package decide

import (
	"cmp"
	"errors"
	"slices"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/envresolve"
)

// Session is what a decision depends on of the session that the call names. It counts for such calls alone.
type Session struct {
	// Object is the session of that name; nil when there is none.
	Object *v1alpha1.ToolSession
	// Requester says whether the session's spec.requestedBy can be believed.
	Requester Requester
	// Use is the answer to the review whether the call's requester may "use" it. See SessionReviewNeeded.
	Use Access
	// Origin is what the session began with, in place of the snapshot's Context; nil before it has begun.
	Origin *Origin
	// Current is the environment of the name that the session began with, as it is now; nil when it is gone. It says
	// which policy applies.
	Current *v1alpha1.ExecutionEnvironment
}

// ErrNotBegun is why nothing is decided about a call whose session has no pod yet.
var ErrNotBegun = errors.New("the session has not begun")

// CheckSession says why a call can't run in the session that it names; nil for a call that can, or names none. It needs
// nothing of the snapshot but the call, the requester, and the session without its origin, so that a call which waits for
// its session can be refused at once. The error is a *Refusal or an *Undecided.
func CheckSession(s *Snapshot) error {
	spec := &s.Call.Spec
	ref, session := spec.SessionRef, s.Session.Object
	switch {
	case ref == nil && spec.Background:
		return deny(v1alpha1.ReasonInvalidArguments, "background needs sessionRef: only a session's pod outlives its calls")
	case ref == nil:
		return nil
	case spec.EnvironmentRef != nil || spec.SkillRef != nil:
		return deny(v1alpha1.ReasonInvalidArguments, "sessionRef excludes environmentRef and skillRef: a call in a session has the session's environment and skill")
	case session == nil:
		return Refuse(v1alpha1.ReasonSessionNotFound, "there is no ToolSession %q in namespace %q: create one, and the call again", ref.Name, s.Call.Namespace)
	case ref.UID != "" && ref.UID != string(session.UID):
		return Refuse(v1alpha1.ReasonSessionNotFound, "the ToolSession %q in namespace %q isn't the one that the call names: spec.sessionRef.uid is %q, its uid is %q", ref.Name, s.Call.Namespace, ref.UID, session.UID)
	case !session.TakesCalls():
		return sessionEnded(session)
	default:
		return s.checkSessionUse()
	}
}

func sessionEnded(session *v1alpha1.ToolSession) *Refusal {
	if session.Status.Phase == v1alpha1.SessionEnded {
		return Refuse(v1alpha1.ReasonSessionEnded, "the ToolSession %q has ended (%s: %s): create another one, and the call again", session.Name, session.Status.Reason, session.Status.Message)
	}
	return Refuse(v1alpha1.ReasonSessionEnded, "the ToolSession %q is being ended: create another one, and the call again", session.Name)
}

// checkSessionUse says why the requester may not run calls in the session.
func (s *Snapshot) checkSessionUse() error {
	name, who, use := s.Session.Object.Name, s.Call.RequesterName(), s.Session.Use
	switch {
	case !s.Requester.Vouched && s.Requester.Missing != "":
		return deny(v1alpha1.ReasonSessionNotAllowed, "an unknown user may not run calls in the ToolSession %q. %s", name, unknownRequester(s.Requester.Missing))
	case !s.Requester.Vouched || who == "":
		return deny(v1alpha1.ReasonSessionNotAllowed, "an unknown user may not run calls in the ToolSession %q", name)
	case s.isCreator():
		return nil
	case use.Err != nil:
		return &Undecided{
			Cause: use.Err, Environment: s.placed().Effective(),
			Otherwise: deny(v1alpha1.ReasonGuardError, "whether %q may use the ToolSession %q could not be checked: %s", who, name, use.Err.Error()),
		}
	case !use.Allowed && s.Session.Requester.Missing != "":
		return deny(v1alpha1.ReasonSessionNotAllowed, "%q may not use the ToolSession %q. Who created it is unknown, because an admission policy that says so is not in force: %s. Install config/admission and create another session", who, name, s.Session.Requester.Missing)
	case !use.Allowed:
		return deny(v1alpha1.ReasonSessionNotAllowed, "%q did not create the ToolSession %q and may not use it: have the verb \"use\" on that toolsession granted by a Role, or create a session", who, name)
	default:
		return nil
	}
}

// isCreator says that the same user created the call and its session, and that admission vouches for both.
func (s *Snapshot) isCreator() bool {
	if !s.Requester.Vouched || !s.Session.Requester.Vouched || s.Session.Object == nil {
		return false
	}
	a, b := s.Call.Spec.RequestedBy, s.Session.Object.Spec.RequestedBy
	return a != nil && b != nil && a.Username == b.Username && a.UID == b.UID
}

// SessionReviewNeeded says whether the decision depends on a review of the verb "use" on the call's session. Admission
// vouches for the requester.
func SessionReviewNeeded(s *Snapshot) bool {
	trial := *s
	trial.Requester.Vouched, trial.Session.Use = true, Access{}
	var refusal *Refusal
	return errors.As(CheckSession(&trial), &refusal) && refusal.Reason == v1alpha1.ReasonSessionNotAllowed && s.Call.RequesterName() != ""
}

// placed is the snapshot with what the call's session began with as its context; the snapshot itself for a call without
// a session.
func (s *Snapshot) placed() *Snapshot {
	if s.Call.Spec.SessionRef == nil {
		return s
	}
	in := *s
	in.Context = Context{}
	if s.Session.Origin != nil {
		in.Context = s.Session.Origin.Context
	}
	return &in
}

// PolicyEnvironment is the environment that says which policy the call is held to; nil when there is none. A session
// keeps the environment that it began with, and yet its calls are held to the policy that the environment names now, for as
// long as it is there.
func (s *Snapshot) PolicyEnvironment() *v1alpha1.ExecutionEnvironment {
	env := s.placed().Effective()
	if now := s.Session.Current; s.Call.Spec.SessionRef != nil && env != nil && now != nil && now.UID == env.UID {
		return now
	}
	return env
}

// request is what a call says about its context, or a session, or a call over what its session says.
type request struct {
	// of is what asks, for messages.
	of                       string
	namespace                string
	environmentRef, skillRef *v1alpha1.LocalReference
	workingDir               string
	env                      []v1alpha1.CallEnvVar
	trusted                  bool
	// tool is the one that access is checked for; empty for a session.
	tool string
	// redact says that the values of Secrets must not leave the call.
	redact bool
}

// request is that of the snapshot's call.
func (s *Snapshot) request() *request {
	spec := &s.Call.Spec
	r := &request{
		of: "call", namespace: s.Call.Namespace, environmentRef: spec.EnvironmentRef, skillRef: spec.SkillRef,
		workingDir: spec.WorkingDir, env: spec.Env, trusted: s.Requester.Vouched && spec.Trusted,
	}
	origin := s.Session.Origin
	if spec.SessionRef == nil || origin == nil {
		return r
	}
	r.workingDir = cmp.Or(spec.WorkingDir, origin.WorkingDir)
	r.env = mergeEnv(origin.Env, spec.Env)
	// Whoever may make a call trusted speaks for what they wrote themselves, not for what somebody else's session holds.
	if origin.WorkingDir != "" || len(origin.Env) > 0 {
		r.trusted = r.trusted && s.isCreator()
	}
	return r
}

// mergeEnv puts a call's variables over those of its session.
func mergeEnv(session, call []v1alpha1.CallEnvVar) []v1alpha1.CallEnvVar {
	merged := slices.DeleteFunc(slices.Clone(session), func(v v1alpha1.CallEnvVar) bool {
		return slices.ContainsFunc(call, func(own v1alpha1.CallEnvVar) bool { return own.Name == v.Name })
	})
	return append(merged, call...)
}

// sessionEnv are the variables that a call's decision keeps of its session: the call itself doesn't hold them.
func (s *Snapshot) sessionEnv() []v1alpha1.CallEnvVar {
	if s.Call.Spec.SessionRef == nil || s.Session.Origin == nil {
		return nil
	}
	return slices.Clone(s.Session.Origin.Env)
}

// checkPlan says why a call's plan can't be carried out in its session's pod, which is there already.
func (s *Snapshot) checkPlan(plan *envresolve.Plan) error {
	if s.Call.Spec.SessionRef == nil {
		return nil
	}
	if err := plan.Validate(); err != nil {
		return Refuse(v1alpha1.ReasonInvalidEnvironment, "the variables of the call and its session: %s", err.Error())
	}
	var absent []string
	for _, ref := range plan.NeededRefs() {
		if !s.Session.Origin.holds(ref) {
			absent = append(absent, namesOf(plan, ref)...)
		}
	}
	if len(absent) == 0 {
		return nil
	}
	slices.Sort(absent)
	return Refuse(v1alpha1.ReasonInvalidEnvironment, "the session's pod lacks the values that the variables %q refer to: it has those that a call which sets nothing itself could get when the session began. Run the call without a session, or in a new one", slices.Compact(absent))
}

// namesOf are the variables that take their value from a reference.
func namesOf(plan *envresolve.Plan, ref string) (names []string) {
	for _, layer := range plan.Layers {
		for _, v := range layer.Vars {
			if v.Ref == ref {
				names = append(names, v.Name)
			}
		}
	}
	return names
}
