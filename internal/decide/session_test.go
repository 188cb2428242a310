package decide_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/envresolve"
)

// inSession has the snapshot's call run in a session that its requester created, and that began with the snapshot's
// environment. The context of the snapshot itself is another one, with two default environments, which must not count.
func inSession(changes ...change) change {
	return func(s *decide.Snapshot) {
		s.Call.Spec.EnvironmentRef, s.Call.Spec.SkillRef = nil, nil
		s.Call.Spec.SessionRef = &v1alpha1.SessionReference{Name: "work", UID: "work-uid"}
		s.Session = decide.Session{
			Object: &v1alpha1.ToolSession{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "work", UID: "work-uid"},
				Spec:       v1alpha1.ToolSessionSpec{RequestedBy: &v1alpha1.Requester{Username: "alice"}},
				Status:     v1alpha1.ToolSessionStatus{Phase: v1alpha1.SessionReady},
			},
			Requester: decide.Requester{Vouched: true},
			Origin:    &decide.Origin{Context: s.Context},
		}
		other := environment("other", value("OTHER", "x"))
		s.Context = decide.Context{Named: &other, Defaults: []v1alpha1.ExecutionEnvironment{other, environment("more")}}
		for _, c := range changes {
			c(s)
		}
	}
}

// ofSession changes the session's spec.
func ofSession(change func(*v1alpha1.ToolSessionSpec)) change {
	return func(s *decide.Snapshot) { change(&s.Session.Object.Spec) }
}

// requestedBy changes who created the call.
func requestedBy(who *v1alpha1.Requester) change {
	return func(s *decide.Snapshot) { s.Call.Spec.RequestedBy = who }
}

func stranger(s *decide.Snapshot) { s.Call.Spec.RequestedBy = &v1alpha1.Requester{Username: "bob"} }

func mayUseSession(s *decide.Snapshot) { s.Session.Use.Allowed = true }

// began says what the session began with besides the environment.
func began(change func(*decide.Origin)) change {
	return func(s *decide.Snapshot) { change(s.Session.Origin) }
}

func callEnv(name, text string) []v1alpha1.CallEnvVar {
	return []v1alpha1.CallEnvVar{{Name: name, Value: text}}
}

// sessionRefusals are those of a call that names a session.
func sessionRefusals() map[string]refusalCase {
	one := func(changes ...change) []change { return []change{inSession(changes...)} }
	ending := func(change func(*v1alpha1.ToolSession)) change {
		return func(s *decide.Snapshot) { change(s.Session.Object) }
	}
	const notFound, ended, notAllowed = v1alpha1.ReasonSessionNotFound, v1alpha1.ReasonSessionEnded, v1alpha1.ReasonSessionNotAllowed
	return map[string]refusalCase{
		"a session that doesn't exist": {one(func(s *decide.Snapshot) { s.Session.Object, s.Session.Origin = nil, nil }), notFound, false, `no ToolSession "work" in namespace "ns"`},
		"a session of the same name made later": {
			one(func(s *decide.Snapshot) { s.Session.Object.UID = "later" }), notFound, false, `spec.sessionRef.uid is "work-uid", its uid is "later"`,
		},
		"a session that ended": {one(ending(func(o *v1alpha1.ToolSession) {
			o.Status.Phase, o.Status.Reason = v1alpha1.SessionEnded, v1alpha1.ReasonIdleTimeout
		})), ended, false, "has ended (IdleTimeout"},
		"a session that somebody ends":    {one(ofSession(func(s *v1alpha1.ToolSessionSpec) { s.End = true })), ended, false, "is being ended"},
		"a session that somebody deleted": {one(ending(func(o *v1alpha1.ToolSession) { o.DeletionTimestamp = &metav1.Time{} })), ended, false, "is being ended"},
		"a session that ended, of somebody else": {
			one(stranger, ofSession(func(s *v1alpha1.ToolSessionSpec) { s.End = true })), ended, false, "is being ended",
		},
		"somebody else's session": {one(stranger), notAllowed, true, `"bob" did not create the ToolSession "work" and may not use it`},
		"a session of a user of the same name": {
			one(requestedBy(&v1alpha1.Requester{Username: "alice", UID: "again"})), notAllowed, true, `"alice" did not create`,
		},
		"a session of a user in the same groups": {
			one(requestedBy(&v1alpha1.Requester{Username: "bob", Groups: []string{"g"}}), ofSession(func(s *v1alpha1.ToolSessionSpec) { s.RequestedBy.Groups = []string{"g"} })),
			notAllowed, true, "did not create",
		},
		"a requester nobody vouches for, in a session": {
			one(mayUseSession, unvouched("MutatingAdmissionPolicy x")), notAllowed, true, "not in force: MutatingAdmissionPolicy x. Install config/admission",
		},
		"a requester nobody vouches for, and nobody says why": {one(mayUseSession, unvouched("")), notAllowed, true, "unknown user"},
		"a session whose creator nobody vouches for": {
			one(func(s *decide.Snapshot) {
				s.Session.Requester = decide.Requester{Missing: "ValidatingAdmissionPolicy y"}
			}), notAllowed, true, "ValidatingAdmissionPolicy y. Install",
		},
		"a requester without a name, in a session": {one(mayUseSession, requestedBy(nil)), notAllowed, true, "unknown user"},
		"nobody's call in nobody's session": {
			one(requestedBy(&v1alpha1.Requester{}), ofSession(func(s *v1alpha1.ToolSessionSpec) { s.RequestedBy = &v1alpha1.Requester{} })), notAllowed, true, "unknown user",
		},
		"a session without a requester": {one(ofSession(func(s *v1alpha1.ToolSessionSpec) { s.RequestedBy = nil })), notAllowed, true, "did not create"},
		"a session and an environment": {
			one(func(s *decide.Snapshot) { s.Call.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "env"} }), v1alpha1.ReasonInvalidArguments, true, "excludes environmentRef",
		},
		"a session and a skill": {
			one(func(s *decide.Snapshot) { s.Call.Spec.SkillRef = &v1alpha1.LocalReference{Name: "s"} }), v1alpha1.ReasonInvalidArguments, true, "excludes environmentRef",
		},
		"a server without a session": {
			both(func(s *decide.Snapshot) { s.Call.Spec.Background = true }), v1alpha1.ReasonInvalidArguments, true, "background needs sessionRef",
		},
		"a protected variable of the session": {
			one(began(func(o *decide.Origin) { o.Env = callEnv("PATH", "/x") })), v1alpha1.ReasonEnvNotAllowed, true,
			`the session "work" sets the variable PATH, which the policy's protectedEnv lists`,
		},
		"a protected variable of the call, over its session's": {
			one(began(func(o *decide.Origin) { o.Env = callEnv("PATH", "/x") }), func(s *decide.Snapshot) { s.Call.Spec.Env = callEnv("PATH", "/y") }),
			v1alpha1.ReasonEnvNotAllowed, true, "the call may not set the variable PATH",
		},
		"a tool that the requester may not use, in a session that the requester may": {
			one(stranger, mayUseSession, under(v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}})),
			v1alpha1.ReasonAgentNotAllowed, true, `"bob" may not use the tool`,
		},
		"a value that the session's pod lacks": {
			one(began(func(o *decide.Origin) {
				o.Named.Spec.Env = []v1alpha1.EnvVar{secret("B", "k"), secret("A", "k"), value("C", "c")}
			})),
			v1alpha1.ReasonInvalidEnvironment, false, `the variables ["A" "B"] refer to`,
		},
		"more variables than a process can have": {one(
			began(func(o *decide.Origin) { o.Env = callEnv("A", strings.Repeat("x", 140<<10)) }),
			func(s *decide.Snapshot) { s.Call.Spec.Env = callEnv("B", strings.Repeat("x", 140<<10)) },
		), v1alpha1.ReasonInvalidEnvironment, false, "over the limit"},
	}
}

func TestACallRunsWhereItsSessionBegan(t *testing.T) {
	t.Parallel()
	s := snapshot(inSession(func(s *decide.Snapshot) {
		began := &s.Session.Origin.Context
		began.Named.Spec.Env = []v1alpha1.EnvVar{value("NAMED", "1"), value("SESSION", "named"), value("CALL", "named")}
		began.Defaults = []v1alpha1.ExecutionEnvironment{environment("default", value("DEFAULT", "1"))}
		began.Skill = &v1alpha1.Skill{Spec: v1alpha1.SkillSpec{Env: []v1alpha1.EnvVar{value("SKILL", "1")}}}
		s.Session.Origin.Env = []v1alpha1.CallEnvVar{{Name: "SESSION", Value: "session"}, {Name: "CALL", Value: "session"}}
		s.Call.Spec.Env = []v1alpha1.CallEnvVar{{Name: "CALL", Value: "call"}, {Name: "OWN", Value: "1"}}
	}))
	d := mustDecide(t, s)
	if d.Environment != "env" || d.In != s.Session.Origin.Named || d.Default != &s.Session.Origin.Defaults[0] || d.Policy != s.Policies.Named {
		t.Errorf("decided for %s, %+v", d.Environment, d)
	}
	if diff := cmp.Diff([]string{"Default", "Skill", "Environment", "Call"}, sources(&d.Plan)); diff != "" {
		t.Error(diff)
	}
	resolved, err := envresolve.Resolve(&d.Plan, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NAMED=1", "DEFAULT=1", "SKILL=1", "SESSION=session", "CALL=call", "OWN=1"} {
		if !strings.Contains(strings.Join(resolved.Env, "\n")+"\n", want+"\n") {
			t.Errorf("%s is missing: %q", want, resolved.Env)
		}
	}
	// A variable that the call sets itself counts once towards what a process can have.
	large := callEnv("LARGE", strings.Repeat("x", 100<<10))
	mustDecide(t, snapshot(inSession(began(func(o *decide.Origin) { o.Env = large }), func(s *decide.Snapshot) { s.Call.Spec.Env = large })))
	// What isn't in the call is kept with the decision.
	a, err := decode(t, encode(t, d)).Assignment(s.Call)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d.Plan, a.Environment, anyOrder); diff != "" {
		t.Errorf("the runner gets another plan: %s", diff)
	}
}

// Who may change a session's spec changes no call: what counts is what the session began with.
func TestAChangedSessionChangesNoCall(t *testing.T) {
	t.Parallel()
	changed := ofSession(func(s *v1alpha1.ToolSessionSpec) {
		s.Env, s.WorkingDir = callEnv("A", "a"), "/changed"
		s.EnvironmentRef, s.SkillRef = &v1alpha1.LocalReference{Name: "other"}, &v1alpha1.LocalReference{Name: "other"}
	})
	if diff := cmp.Diff(mustDecide(t, snapshot(inSession())), mustDecide(t, snapshot(inSession(changed)))); diff != "" {
		t.Error(diff)
	}
}

func TestTheDirectoryIsTheCallsThenTheSessionsThenTheEnvironments(t *testing.T) {
	t.Parallel()
	environments := began(func(o *decide.Origin) { o.Named.Spec.WorkingDir = "/environment" })
	sessions := began(func(o *decide.Origin) { o.WorkingDir = "/session" })
	own := func(s *decide.Snapshot) { s.Call.Spec.WorkingDir = "/call" }
	for want, changes := range map[string][]change{
		"": nil, "/environment": {environments}, "/session": {environments, sessions}, "/call": {environments, sessions, own},
	} {
		if got := mustDecide(t, snapshot(inSession(changes...))).Plan.WorkingDir; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// What the session sets counts as the call's own context. Somebody else's isn't vouched for by whoever may make a call
// trusted.
func TestACallInASessionIsTrustedForWhatItsRequesterWrote(t *testing.T) {
	t.Parallel()
	unnamed := func(s *decide.Snapshot) {
		s.Session.Origin.Defaults, s.Session.Origin.Named = []v1alpha1.ExecutionEnvironment{*s.Session.Origin.Named}, nil
	}
	env := began(func(o *decide.Origin) { o.Env = callEnv("A", "a") })
	dir := began(func(o *decide.Origin) { o.WorkingDir = "/tmp" })
	says := func(s *decide.Snapshot) { s.Call.Spec.Trusted = true }
	own := func(s *decide.Snapshot) { s.Call.Spec.Env = callEnv("B", "b") }
	for name, tc := range map[string]struct {
		change  []change
		trusted bool
	}{
		"nothing set":                                   {[]change{unnamed}, true},
		"the session's variables":                       {[]change{unnamed, env}, false},
		"the session's directory":                       {[]change{unnamed, dir}, false},
		"the session's environment":                     {nil, false},
		"the call's own variables":                      {[]change{unnamed, own}, false},
		"the creator's word":                            {[]change{says, env, own}, true},
		"another's word, for an environment":            {[]change{says, stranger, mayUseSession, own}, true},
		"another's word, for variables of the session":  {[]change{says, stranger, mayUseSession, env}, false},
		"another's word, for the session's directory":   {[]change{says, stranger, mayUseSession, dir}, false},
		"a word for a session nobody vouches for":       {[]change{says, mayUseSession, env, func(s *decide.Snapshot) { s.Session.Requester.Vouched = false }}, false},
		"no word, from whoever may use it, nothing set": {[]change{unnamed, stranger, mayUseSession}, true},
	} {
		if d := mustDecide(t, snapshot(inSession(tc.change...))); d.Plan.Trusted != tc.trusted {
			t.Errorf("%s: trusted: %t", name, d.Plan.Trusted)
		}
	}
}

func TestOnlyItsCreatorNeedsNoReviewForASession(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change []change
		needed bool
	}{
		"the creator":                      {nil, false},
		"the creator, in another group":    {[]change{requestedBy(&v1alpha1.Requester{Username: "alice", Groups: []string{"g"}})}, false},
		"somebody else":                    {[]change{stranger}, true},
		"somebody else, who may":           {[]change{stranger, mayUseSession}, true},
		"a user of the creator's name":     {[]change{requestedBy(&v1alpha1.Requester{Username: "alice", UID: "again"})}, true},
		"nobody":                           {[]change{requestedBy(nil)}, false},
		"a session nobody vouches for":     {[]change{func(s *decide.Snapshot) { s.Session.Requester.Vouched = false }}, true},
		"a session that ended":             {[]change{stranger, ofSession(func(s *v1alpha1.ToolSessionSpec) { s.End = true })}, false},
		"a session that isn't there":       {[]change{stranger, func(s *decide.Snapshot) { s.Session.Object = nil }}, false},
		"a session that has not begun yet": {[]change{stranger, func(s *decide.Snapshot) { s.Session.Origin = nil }}, true},
	} {
		if got := decide.SessionReviewNeeded(snapshot(inSession(tc.change...))); got != tc.needed {
			t.Errorf("%s: needed: %t", name, got)
		}
	}
	if decide.SessionReviewNeeded(snapshot()) {
		t.Error("a call without a session needs one")
	}
	mustDecide(t, snapshot(inSession(stranger, mayUseSession)))
}

// The review of the tool is asked for after that of the session, and only where the call may run there.
func TestAReviewOfTheToolIsNeededInASessionToo(t *testing.T) {
	t.Parallel()
	rbac := under(v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}})
	for name, tc := range map[string]struct {
		change []change
		needed bool
	}{
		"the creator": {nil, true}, "somebody who may": {[]change{stranger, mayUseSession}, true}, "somebody who may not": {[]change{stranger}, false},
	} {
		if _, needed := decide.ReviewNeeded(snapshot(inSession(append(tc.change, rbac)...))); needed != tc.needed {
			t.Errorf("%s: needed: %t", name, needed)
		}
	}
}

func TestAReviewOfASessionThatFailsLeavesTheCallUndecided(t *testing.T) {
	t.Parallel()
	down := errors.New("the authorizer is down")
	failed := func(s *decide.Snapshot) { s.Session.Use = decide.Access{Allowed: true, Err: down} }
	s := snapshot(inSession(stranger, failed))
	var open *decide.Undecided
	if d, err := decide.Decide(s); !errors.As(err, &open) || d != nil || !errors.Is(err, down) || open.Environment != s.Session.Origin.Named {
		t.Fatalf("got %+v, %v", d, err)
	}
	if o := open.Otherwise; o.Reason != v1alpha1.ReasonGuardError || !o.Denied || !strings.Contains(o.Message, `whether "bob" may use the ToolSession "work"`) {
		t.Errorf("the call ends with %+v", o)
	}
	mustDecide(t, snapshot(inSession(failed)))
}

// A call that waits for its session is refused at once where it never may run, and isn't decided about before it may.
func TestACallOfASessionThatHasNotBegunWaits(t *testing.T) {
	t.Parallel()
	pending := func(s *decide.Snapshot) {
		s.Session.Origin, s.Session.Object.Status.Phase = nil, v1alpha1.SessionPending
	}
	if err := decide.CheckSession(snapshot(inSession(pending))); err != nil {
		t.Errorf("got %v", err)
	}
	var refusal *decide.Refusal
	if err := decide.CheckSession(snapshot(inSession(pending, stranger))); !errors.As(err, &refusal) || refusal.Reason != v1alpha1.ReasonSessionNotAllowed {
		t.Errorf("got %v", err)
	}
	var open *decide.Undecided
	failing := func(s *decide.Snapshot) { s.Session.Use.Err = errors.New("down") }
	if err := decide.CheckSession(snapshot(inSession(pending, stranger, failing))); !errors.As(err, &open) || decide.StartTimeoutSeconds(open.Environment) != 120 {
		t.Errorf("got %v", err)
	}
	if d, err := decide.Decide(snapshot(inSession(pending))); !errors.As(err, &open) || d != nil {
		t.Errorf("got %+v, %v", d, err)
	}
	if err := decide.CheckSession(snapshot()); err != nil {
		t.Errorf("a call without a session: %v", err)
	}
}

// The environment stays as it was, and what its calls may do doesn't.
func TestTheCurrentEnvironmentSaysWhichPolicyHolds(t *testing.T) {
	t.Parallel()
	now := func(change func(*v1alpha1.ExecutionEnvironment)) change {
		return func(s *decide.Snapshot) {
			s.Session.Current = s.Session.Origin.Named.DeepCopy()
			s.Session.Current.Spec.PolicyRef = &v1alpha1.PolicyReference{Name: "strict"}
			s.Session.Current.Spec.Image = "image:2"
			change(s.Session.Current)
		}
	}
	for name, tc := range map[string]struct {
		change change
		policy string
	}{
		"the environment is gone":         {func(*decide.Snapshot) {}, "policy"},
		"it names another policy":         {now(func(*v1alpha1.ExecutionEnvironment) {}), "strict"},
		"it names none any more":          {now(func(e *v1alpha1.ExecutionEnvironment) { e.Spec.PolicyRef = nil }), ""},
		"it is another of the same name":  {now(func(e *v1alpha1.ExecutionEnvironment) { e.UID = "other" }), "policy"},
		"the call's own context is later": {func(s *decide.Snapshot) { s.Named.UID = s.Session.Origin.Named.UID }, "policy"},
	} {
		s := snapshot(inSession(tc.change))
		if got := s.PolicyEnvironment().Spec.PolicyName(); got != tc.policy {
			t.Errorf("%s: the policy is %q, want %q", name, got, tc.policy)
		}
		// The built-in defaults have no shell.
		d, err := decide.Decide(s)
		if (err == nil) != (tc.policy != "") || d != nil && d.In.Spec.Image != "image:1" {
			t.Errorf("%s: decided %+v, %v", name, d, err)
		}
		s.Policies.Named = nil
		if _, err := decide.Decide(s); tc.policy != "" && (err == nil || !strings.Contains(err.Error(), `no ExecutionPolicy "`+tc.policy+`"`)) {
			t.Errorf("%s: without the policy: %v", name, err)
		}
	}
	if got := snapshot().PolicyEnvironment().Name; got != "env" {
		t.Errorf("without a session: %s", got)
	}
}

func TestAServerHasTheSessionsTimeUnlessItAsksForLess(t *testing.T) {
	t.Parallel()
	bounds := open()
	bounds.Timeouts = &v1alpha1.TimeoutsPolicy{DefaultSeconds: ptr.To(int32(20)), MaxSeconds: ptr.To(int32(50))}
	bounds.Code = &v1alpha1.CodePolicy{MaxExecutionMilliseconds: ptr.To(int64(5000))}
	server := func(s *decide.Snapshot) { s.Call.Spec.Background = true }
	code := func(s *decide.Snapshot) {
		s.Call.Spec.Shell, s.Call.Spec.Code = nil, &v1alpha1.CodeAction{Language: "python", Source: "1"}
	}
	for name, tc := range map[string]struct {
		change []change
		want   time.Duration
	}{
		"a call": {nil, 20 * time.Second}, "a server": {[]change{server}, 0},
		"a server that asks": {[]change{server, wants(7)}, 7 * time.Second}, "a server that asks for too much": {[]change{server, wants(51)}, 50 * time.Second},
		"a server that is code": {[]change{server, code}, 5 * time.Second}, "one that asks": {[]change{server, code, wants(2)}, 2 * time.Second},
	} {
		if d := mustDecide(t, snapshot(inSession(append(tc.change, under(bounds))...))); d.Timeout() != tc.want {
			t.Errorf("%s: got %s, want %s", name, d.Timeout(), tc.want)
		}
	}
}

// A trusted call may see blocked variables, and a session's pod has no value for them.
func TestATrustedCallGetsNothingThatTheSessionsPodLacks(t *testing.T) {
	t.Parallel()
	env := environment("env", secret("AWS_KEY", "blocked"), secret("TOKEN", "k"))
	origin, err := decide.Begin(&decide.SessionSnapshot{
		Session: &v1alpha1.ToolSession{Spec: v1alpha1.ToolSessionSpec{EnvironmentRef: &v1alpha1.LocalReference{Name: "env"}}},
		Context: decide.Context{Named: &env},
	})
	if err != nil {
		t.Fatal(err)
	}
	with := func(s *decide.Snapshot) {
		s.Session.Origin = origin
		s.Policies.Defaults = append(s.Policies.Defaults, *s.Policies.Named)
	}
	mustDecide(t, snapshot(inSession(with)))
	trusted := func(s *decide.Snapshot) { s.Call.Spec.Trusted = true }
	if r := refusalOf(t, snapshot(inSession(with, trusted))); r.Reason != v1alpha1.ReasonInvalidEnvironment || !strings.Contains(r.Message, `["AWS_KEY"]`) {
		t.Errorf("got %+v", r)
	}
}
