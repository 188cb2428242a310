package decide_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

// begin is the beginning of a session in environment "env" under an open policy.
func begin(changes ...func(*decide.SessionSnapshot)) *decide.SessionSnapshot {
	env := environment("env", value("A", "a"), secret("B", "b"), secret("AWS_KEY", "blocked"))
	env.Spec.PolicyRef = &v1alpha1.PolicyReference{Name: "policy"}
	s := &decide.SessionSnapshot{
		Session:  &v1alpha1.ToolSession{Spec: v1alpha1.ToolSessionSpec{EnvironmentRef: &v1alpha1.LocalReference{Name: "env"}}},
		Context:  decide.Context{Named: &env},
		Policies: decide.Policies{Named: policy("policy", open())},
	}
	s.Session.Namespace, s.Session.Name = "ns", "work"
	for _, c := range changes {
		c(s)
	}
	return s
}

func mustBegin(t *testing.T, s *decide.SessionSnapshot) *decide.Origin {
	t.Helper()
	o, err := decide.Begin(s)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestASessionThatCannotBeginSaysWhy(t *testing.T) {
	t.Parallel()
	skill := func(s *decide.SessionSnapshot) { s.Session.Spec.SkillRef = &v1alpha1.LocalReference{Name: "review"} }
	unnamed := func(s *decide.SessionSnapshot) { s.Named, s.Session.Spec.EnvironmentRef = nil, nil }
	for name, tc := range map[string]struct {
		change           []func(*decide.SessionSnapshot)
		reason, contains string
	}{
		"no environment of the name":    {[]func(*decide.SessionSnapshot){func(s *decide.SessionSnapshot) { s.Named = nil }}, v1alpha1.ReasonEnvironmentNotFound, `"env" in namespace "ns"`},
		"no skill of the name":          {[]func(*decide.SessionSnapshot){skill}, v1alpha1.ReasonSkillNotFound, `"review"`},
		"no environment":                {[]func(*decide.SessionSnapshot){unnamed}, v1alpha1.ReasonNoEnvironment, "the session names no environment"},
		"two default environments":      {[]func(*decide.SessionSnapshot){func(s *decide.SessionSnapshot) { s.Defaults = make([]v1alpha1.ExecutionEnvironment, 2) }}, v1alpha1.ReasonInvalidEnvironment, ""},
		"no policy of the name":         {[]func(*decide.SessionSnapshot){func(s *decide.SessionSnapshot) { s.Policies.Named = nil }}, v1alpha1.ReasonInvalidPolicy, `"policy"`},
		"a policy that doesn't compile": {[]func(*decide.SessionSnapshot){func(s *decide.SessionSnapshot) { s.Policies.Named.Spec.Access = "Anybody" }}, v1alpha1.ReasonInvalidPolicy, "spec.access"},
		"variables of no process": {[]func(*decide.SessionSnapshot){func(s *decide.SessionSnapshot) {
			s.Session.Spec.Env = callEnv("A", strings.Repeat("x", 300<<10))
		}}, v1alpha1.ReasonInvalidEnvironment, "the session's variables"},
	} {
		o, err := decide.Begin(begin(tc.change...))
		var refusal *decide.Refusal
		if !errors.As(err, &refusal) || o != nil || refusal.Reason != tc.reason || !strings.Contains(refusal.Message, tc.contains) {
			t.Errorf("%s: got %+v, %v", name, o, err)
		}
	}
}

func TestASessionsPodHasWhatACallThatSetsNothingMayGet(t *testing.T) {
	t.Parallel()
	blocked := func(s *decide.SessionSnapshot) { s.Policies.Named.Spec.EnvBlocklist = []string{"B"} }
	overridden := func(s *decide.SessionSnapshot) { s.Session.Spec.Env = callEnv("B", "literal") }
	withDefault := func(s *decide.SessionSnapshot) {
		s.Defaults = []v1alpha1.ExecutionEnvironment{environment("default", secret("D", "d"), secret("B", "hidden"))}
	}
	withSkill := func(s *decide.SessionSnapshot) {
		s.Session.Spec.SkillRef = &v1alpha1.LocalReference{Name: "skill"}
		s.Skill = &v1alpha1.Skill{Spec: v1alpha1.SkillSpec{Env: []v1alpha1.EnvVar{secret("S", "s")}}}
	}
	unnamed := func(s *decide.SessionSnapshot) {
		s.Defaults, s.Named, s.Session.Spec.EnvironmentRef = []v1alpha1.ExecutionEnvironment{*s.Named}, nil, nil
		s.Defaults[0].Spec.PolicyRef = nil
	}
	for name, tc := range map[string]struct {
		change []func(*decide.SessionSnapshot)
		want   []string
	}{
		"an environment":                     {nil, []string{"b"}},
		"a blocklist of the policy":          {[]func(*decide.SessionSnapshot){blocked}, []string{"blocked"}},
		"a variable of the session's own":    {[]func(*decide.SessionSnapshot){overridden}, nil},
		"all layers":                         {[]func(*decide.SessionSnapshot){withDefault, withSkill}, []string{"b", "d", "s"}},
		"the platform's environment, as is":  {[]func(*decide.SessionSnapshot){unnamed}, []string{"b", "blocked"}},
		"the platform's, with own variables": {[]func(*decide.SessionSnapshot){unnamed, func(s *decide.SessionSnapshot) { s.Session.Spec.Env = callEnv("X", "x") }}, []string{"b"}},
	} {
		if diff := cmp.Diff(tc.want, keysOf(mustBegin(t, begin(tc.change...)).Refs)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A status has names and sources, and no values.
func TestASessionSaysWhichEnvironmentItsCallsHave(t *testing.T) {
	t.Parallel()
	layers := func(s *decide.SessionSnapshot) {
		s.Defaults = []v1alpha1.ExecutionEnvironment{environment("default", value("D", "d"), value("A", "hidden"))}
		s.Session.Spec.SkillRef = &v1alpha1.LocalReference{Name: "skill"}
		s.Skill = &v1alpha1.Skill{Spec: v1alpha1.SkillSpec{Env: []v1alpha1.EnvVar{value("S", "s")}}}
		s.Session.Spec.Env = callEnv("C", "c")
	}
	unnamed := func(s *decide.SessionSnapshot) {
		s.Defaults, s.Named, s.Session.Spec.EnvironmentRef = []v1alpha1.ExecutionEnvironment{*s.Named}, nil, nil
		s.Defaults[0].Spec.PolicyRef = nil
	}
	inDirectory := func(s *decide.SessionSnapshot) { s.Session.Spec.WorkingDir = "/w" }
	for name, tc := range map[string]struct {
		change []func(*decide.SessionSnapshot)
		want   v1alpha1.ResolvedEnvironment
	}{
		"all layers": {[]func(*decide.SessionSnapshot){layers}, v1alpha1.ResolvedEnvironment{
			Name: "env", StrippedEnv: []string{"AWS_KEY"},
			Env: []v1alpha1.ResolvedEnvVar{{Name: "A", Source: "Environment"}, {Name: "B", Source: "Environment"}, {Name: "C", Source: "Call"}, {Name: "D", Source: "Default"}, {Name: "S", Source: "Skill"}},
		}},
		"the platform's environment, as is": {[]func(*decide.SessionSnapshot){unnamed}, v1alpha1.ResolvedEnvironment{
			Name: "env", Trusted: true, Env: []v1alpha1.ResolvedEnvVar{{Name: "A", Source: "Default"}, {Name: "AWS_KEY", Source: "Default"}, {Name: "B", Source: "Default"}},
		}},
		"the platform's, in a directory of the session's": {[]func(*decide.SessionSnapshot){unnamed, inDirectory}, v1alpha1.ResolvedEnvironment{
			Name: "env", StrippedEnv: []string{"AWS_KEY"}, Env: []v1alpha1.ResolvedEnvVar{{Name: "A", Source: "Default"}, {Name: "B", Source: "Default"}},
		}},
	} {
		raw, err := mustBegin(t, begin(tc.change...)).Encode()
		if err != nil {
			t.Fatal(err)
		}
		o, err := decide.DecodeOrigin(raw)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&tc.want, o.Resolved(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// What the API takes for a session's variables is stored, with what it began with and with each decision.
func TestTheLargestVariablesOfASessionAreStored(t *testing.T) {
	t.Parallel()
	largest := callEnv("A", strings.Repeat("x", v1alpha1.MaxEnvBytes-1))
	o := mustBegin(t, begin(func(s *decide.SessionSnapshot) { s.Session.Spec.Env = largest }))
	if _, err := o.Encode(); err != nil {
		t.Error(err)
	}
	d, err := decide.Decide(snapshot(inSession(began(func(o *decide.Origin) { o.Env = largest }))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Encode(); err != nil {
		t.Error(err)
	}
}

func TestASessionKeepsWhatItBeganWith(t *testing.T) {
	t.Parallel()
	s := begin(func(s *decide.SessionSnapshot) {
		s.Named.Labels = map[string]string{"kueue.x-k8s.io/priority-class": "p"}
		s.Named.Annotations = map[string]string{"large": "x"}
		s.Named.Status.ActiveCalls = 7
		s.Defaults = []v1alpha1.ExecutionEnvironment{environment("default", value("D", "d"))}
		s.Session.Spec.SkillRef = &v1alpha1.LocalReference{Name: "skill"}
		s.Skill = &v1alpha1.Skill{Spec: v1alpha1.SkillSpec{Env: []v1alpha1.EnvVar{value("S", "s")}}}
		s.Skill.Name = "skill"
		s.Session.Spec.WorkingDir, s.Session.Spec.Env = "/w", callEnv("E", "e")
	})
	o := mustBegin(t, s)
	want := decide.Context{Named: s.Named.DeepCopy(), Defaults: []v1alpha1.ExecutionEnvironment{*s.Defaults[0].DeepCopy()}, Skill: s.Skill.DeepCopy()}
	want.Named.Annotations, want.Named.Status = nil, v1alpha1.ExecutionEnvironmentStatus{}
	s.Named.Spec.Image, s.Named.Spec.Env[0].Value, s.Named.Labels["kueue.x-k8s.io/priority-class"] = "image:2", "changed", "changed"
	s.Defaults[0].Spec.Env[0].Value, s.Skill.Spec.Env[0].Value, s.Session.Spec.Env[0].Value = "changed", "changed", "changed"
	if diff := cmp.Diff(want, o.Context) + cmp.Diff(callEnv("E", "e"), o.Env); diff != "" || o.WorkingDir != "/w" {
		t.Errorf("in %q: %s", o.WorkingDir, diff)
	}
	raw, err := o.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := decide.DecodeOrigin(raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(o, again); diff != "" {
		t.Errorf("what was stored: %s", diff)
	}
}

func TestAnOriginIsStoredUpToItsBound(t *testing.T) {
	t.Parallel()
	with := func(size int) error {
		_, err := mustBegin(t, begin(func(s *decide.SessionSnapshot) { s.Named.Spec.Env[0].Value = strings.Repeat("x", size) })).Encode()
		return err
	}
	if err := with(100 << 10); err != nil {
		t.Error(err)
	}
	o := mustBegin(t, begin(func(s *decide.SessionSnapshot) {
		s.Defaults = []v1alpha1.ExecutionEnvironment{environment("default", value("D", strings.Repeat("d", 100<<10)))}
		s.Named.Spec.Env[0].Value = strings.Repeat("x", 100<<10)
	}))
	if raw, err := o.Encode(); err == nil || raw != nil || !strings.Contains(err.Error(), "at most 184320") || strings.Contains(err.Error(), "xxx") {
		t.Errorf("over the bound: %v", err)
	}
	for _, raw := range []string{"", "{", "[]", `{"Refs": {}}`, `{} {}`} {
		if o, err := decide.DecodeOrigin([]byte(raw)); err == nil || o != nil {
			t.Errorf("%q: %+v, %v", raw, o, err)
		}
	}
}

// FuzzDecodeOrigin holds that what can be decoded encodes to the same again, whatever bytes come.
func FuzzDecodeOrigin(f *testing.F) {
	f.Add([]byte(`{"Named":{"metadata":{"name":"env"},"spec":{"image":"i","env":[{"name":"A","value":"b"}]}},"Refs":[{"name":"R"}]}`))
	f.Add([]byte(`{"Defaults":[{}],"Skill":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		first, err := decide.DecodeOrigin(raw)
		if err != nil {
			return
		}
		again, err := first.Encode()
		if err != nil {
			return
		}
		second, err := decide.DecodeOrigin(again)
		if err != nil {
			t.Fatal(err)
		}
		if third, err := json.Marshal(second); err != nil || string(third) != string(again) {
			t.Errorf("%q became %q, then %q, %v", raw, again, third, err)
		}
	})
}

func TestASessionSaysWhyItWasEnded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		mark string
		end  bool
		want string
	}{
		"deleted": {"", false, "was deleted"}, "ended": {"", true, "spec.end"},
		"restored, another's": {v1alpha1.RestoredRequester, true, "named another user"},
		"restored, ended":     {v1alpha1.RestoredStatus, true, "the status of a session that had ended"},
		"restored by a tool":  {v1alpha1.RestoredTool, true, "a tool that restores"},
		"what a user wrote":   {"text of the user's", true, "a tool that restores"},
		"a mark that says it, on a session that goes on": {v1alpha1.RestoredTool, false, "was deleted"},
	} {
		session := &v1alpha1.ToolSession{Spec: v1alpha1.ToolSessionSpec{End: tc.end}}
		session.Annotations = map[string]string{v1alpha1.AnnotationRestored: tc.mark}
		if got := decide.EndRequested(session); !strings.Contains(got, tc.want) || tc.mark != "" && strings.Contains(got, tc.mark) {
			t.Errorf("%s: %s", name, got)
		}
	}
}
