package decide_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/spec"
)

func TestADecisionIsWhole(t *testing.T) {
	t.Parallel()
	s := snapshot(wants(7), func(s *decide.Snapshot) {
		s.Policies.Named.Spec.Output = &v1alpha1.OutputPolicy{MaxBytesPerStream: ptr.To(int32(1234)), KeepBytesPerStream: ptr.To(int64(2345))}
		s.Named.Spec.StartTimeoutSeconds = ptr.To(int32(33))
		s.Defaults = []v1alpha1.ExecutionEnvironment{environment("default", v1alpha1.EnvVar{Name: "D", Value: "1"})}
	})
	d := mustDecide(t, s)
	want := &decide.Decision{
		Environment: "env", ArgvPrefix: []string{"bash", "-c"}, Bounds: spec.Bounds{TimeoutMilliseconds: 7000, MaxBytesPerStream: 1234, KeepBytesPerStream: 2345}, StartTimeoutSeconds: 33,
		In: s.Named, Default: &s.Defaults[0], Policy: s.Policies.Named, Plan: d.Plan,
		Network: &network.Rules{Mode: network.Open, Implied: true},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Error(diff)
	}
	if len(d.Plan.Layers) != 1 || d.Environment != "env" || d.Plan.Trusted {
		t.Errorf("the plan is %+v", d.Plan)
	}
	if d.Timeout() != 7*time.Second || d.StartTimeout() != 33*time.Second {
		t.Errorf("limits: %s, %s", d.Timeout(), d.StartTimeout())
	}
}

func TestLimitsComeFromThePolicyUnlessTheCallAsksForLess(t *testing.T) {
	t.Parallel()
	bounds := open()
	bounds.Timeouts = &v1alpha1.TimeoutsPolicy{DefaultSeconds: ptr.To(int32(20)), MaxSeconds: ptr.To(int32(50))}
	for name, tc := range map[string]struct {
		change []change
		want   time.Duration
	}{
		"the built-in default":          {nil, 2 * time.Minute},
		"the policy's default":          {both(under(bounds)), 20 * time.Second},
		"what the call asks for":        {both(under(bounds), wants(7)), 7 * time.Second},
		"no more than the policy's":     {both(under(bounds), wants(51)), 50 * time.Second},
		"at least one second":           {both(under(bounds), wants(0)), time.Second},
		"what the tool's arguments say": {both(under(bounds), wants(7), runs(tool("bash", `{"command": "ls", "timeout": 9}`))), 9 * time.Second},
	} {
		if d := mustDecide(t, snapshot(tc.change...)); d.Timeout() != tc.want {
			t.Errorf("%s: got %s, want %s", name, d.Timeout(), tc.want)
		}
	}
	if got := mustDecide(t, snapshot()).StartTimeout(); got != 2*time.Minute {
		t.Errorf("without a start timeout of the environment: %s", got)
	}
}

func TestTheEnvironmentDecidesTheFirstPartOfTheCommandLine(t *testing.T) {
	t.Parallel()
	own := func(s *decide.Snapshot) {
		s.Named.Spec.Shell = []string{"zsh", "-c"}
		s.Named.Spec.Interpreters = map[string]v1alpha1.CommandPrefix{"python": {"pypy3"}, "lua": {"lua5"}}
	}
	anyLanguage := under(languages([]string{}...))
	for name, tc := range map[string]struct {
		change []change
		want   []string
	}{
		"a program":                        {both(own, runs(program("ls"))), nil},
		"a shell line":                     {nil, []string{"bash", "-c"}},
		"a shell line in its own shell":    {both(own), []string{"zsh", "-c"}},
		"python":                           {both(runs(code("Python", ""))), []string{"python3"}},
		"javascript":                       {both(anyLanguage, runs(code("javascript", ""))), []string{"node"}},
		"bash":                             {both(anyLanguage, runs(code("bash", ""))), []string{"bash"}},
		"sh":                               {both(anyLanguage, runs(code("sh", ""))), []string{"sh"}},
		"ruby":                             {both(anyLanguage, runs(code("ruby", ""))), []string{"ruby"}},
		"perl":                             {both(anyLanguage, runs(code("perl", ""))), []string{"perl"}},
		"an interpreter that was replaced": {both(own, runs(code("python", ""))), []string{"pypy3"}},
		"an interpreter of its own":        {both(own, anyLanguage, runs(code("LUA", ""))), []string{"lua5"}},
	} {
		if got := mustDecide(t, snapshot(tc.change...)).ArgvPrefix; !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestOnlyCodeThatAsksGetsNetwork(t *testing.T) {
	t.Parallel()
	spec := languages()
	spec.Code.NetworkAccess = ptr.To(true)
	spec.Shell = &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}
	for name, tc := range map[string]struct {
		action v1alpha1.ToolCallSpec
		denied bool
	}{
		"a program":          {program("ls"), false},
		"a shell line":       {shell("ls"), false},
		"code":               {code("python", ""), true},
		"code that asks":     {v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: "python", NetworkAccess: ptr.To(true)}}, false},
		"code that declines": {v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: "python", NetworkAccess: ptr.To(false)}}, true},
		"a tool that asks":   {tool("python", `{"code": "", "network_access": true}`), false},
	} {
		if d := mustDecide(t, snapshot(under(spec), runs(tc.action))); d.DenyNetwork != tc.denied {
			t.Errorf("%s: network denied: %t", name, d.DenyNetwork)
		}
	}
}

func TestAReviewThatFailsLeavesTheCallUndecided(t *testing.T) {
	t.Parallel()
	rbac := under(v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}})
	down := errors.New("the authorizer is down")
	failed := func(s *decide.Snapshot) { s.Access = decide.Access{Allowed: true, Err: down} }
	s := snapshot(rbac, failed)
	d, err := decide.Decide(s)
	var open *decide.Undecided
	if !errors.As(err, &open) || d != nil {
		t.Fatalf("got %+v, %v", d, err)
	}
	if !errors.Is(err, down) || open.Environment != s.Named || !strings.Contains(err.Error(), down.Error()) {
		t.Errorf("got %+v", open)
	}
	if o := open.Otherwise; o.Reason != v1alpha1.ReasonGuardError || !o.Denied || o.Environment != "env" || !strings.Contains(o.Message, `whether "alice" may use "bash"`) {
		t.Errorf("the call ends with %+v", o)
	}
	for name, changes := range map[string][]change{
		"whoever may use anything":                   {failed},
		"a requester that nobody vouches for":        {rbac, failed, unvouched("x")},
		"a call that is refused before the review":   {rbac, failed, runs(program(""))},
		"a call whose tool nobody knows":             {rbac, failed, runs(tool("fly", `{}`))},
		"a call without an environment to run it in": {rbac, failed, func(s *decide.Snapshot) { s.Named = nil }},
	} {
		if _, err := decide.Decide(snapshot(changes...)); errors.As(err, &open) {
			t.Errorf("%s: undecided, though no answer is needed: %v", name, err)
		}
	}
}

// A guard after the review refuses for its own reason, whoever asks.
func TestAYesOfTheReviewIsNotTheLastWord(t *testing.T) {
	t.Parallel()
	rbac := under(v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}})
	mustDecide(t, snapshot(rbac, allowed))
	refusal := refusalOf(t, snapshot(rbac, allowed, func(s *decide.Snapshot) { s.Call.Spec.Env = []v1alpha1.CallEnvVar{{Name: "LD_PRELOAD"}} }))
	if refusal.Reason != v1alpha1.ReasonEnvNotAllowed {
		t.Errorf("got %+v", refusal)
	}
}

func TestWhyTheRequesterIsUnknownIsSaidOfNothingElse(t *testing.T) {
	t.Parallel()
	for name, changes := range map[string][]change{
		"another reason":     {unvouched("Policy x"), runs(program(""))},
		"a known requester":  {under(v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}})},
		"nothing is missing": {under(v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}}), unvouched("")},
	} {
		if r := refusalOf(t, snapshot(changes...)); strings.Contains(r.Message, "not in force") {
			t.Errorf("%s: %q", name, r.Message)
		}
	}
}

func TestAReviewIsNeededOnlyWhereItsAnswerCounts(t *testing.T) {
	t.Parallel()
	rbac := v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}}
	type answer struct {
		Tool   string
		Needed bool
	}
	for name, tc := range map[string]struct {
		change []change
		want   answer
	}{
		"a shell line":                   {both(under(rbac)), answer{"bash", true}},
		"a program":                      {both(under(rbac), runs(program("ls"))), answer{"ls", true}},
		"code":                           {both(under(rbac), runs(code("Python", ""))), answer{"python", true}},
		"a tool":                         {both(under(rbac), runs(tool("terminal", `{"command": "ls"}`))), answer{"bash", true}},
		"the built-in defaults":          {both(func(s *decide.Snapshot) { s.Named.Spec.PolicyRef, s.Policies.Named = nil, nil }), answer{"bash", true}},
		"a policy that lets everybody":   {nil, answer{}},
		"a policy that doesn't compile":  {both(under(v1alpha1.ExecutionPolicySpec{Access: "Anybody"})), answer{}},
		"a policy that isn't there":      {both(func(s *decide.Snapshot) { s.Policies.Named = nil }), answer{}},
		"an environment that is missing": {both(under(rbac), func(s *decide.Snapshot) { s.Named = nil }), answer{}},
		"a tool that nobody knows":       {both(under(rbac), runs(tool("fly", `{}`))), answer{}},
	} {
		var got answer
		got.Tool, got.Needed = decide.ReviewNeeded(snapshot(tc.change...))
		if got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}
