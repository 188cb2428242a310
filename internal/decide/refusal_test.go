package decide_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

// refusalCase is a snapshot that is refused.
type refusalCase struct {
	change   []change
	reason   string
	denied   bool
	contains string
}

func both(changes ...change) []change { return changes }

// contextRefusals are those of a call whose environments, skill or policy can't be used.
func contextRefusals() map[string]refusalCase {
	two := []v1alpha1.ExecutionEnvironment{environment("b"), environment("a")}
	unnamed := func(s *decide.Snapshot) { s.Named, s.Call.Spec.EnvironmentRef = nil, nil }
	return map[string]refusalCase{
		"an environment that doesn't exist": {both(func(s *decide.Snapshot) { s.Named = nil }), v1alpha1.ReasonEnvironmentNotFound, false, `ExecutionEnvironment "env" in namespace "ns"`},
		"an environment that doesn't exist, where there is a default": {
			both(func(s *decide.Snapshot) { s.Named, s.Defaults = nil, two[:1] }), v1alpha1.ReasonEnvironmentNotFound, false, `"env"`,
		},
		"a skill that doesn't exist": {
			both(func(s *decide.Snapshot) { s.Call.Spec.SkillRef = &v1alpha1.LocalReference{Name: "review"} }), v1alpha1.ReasonSkillNotFound, false, `Skill "review" in namespace "ns"`,
		},
		"two default environments, none named":          {both(unnamed, func(s *decide.Snapshot) { s.Defaults = two }), v1alpha1.ReasonInvalidEnvironment, false, `["a" "b"]`},
		"two default environments beside the named one": {both(func(s *decide.Snapshot) { s.Defaults = two }), v1alpha1.ReasonInvalidEnvironment, false, `["a" "b"]`},
		"no environment at all":                         {both(unnamed), v1alpha1.ReasonNoEnvironment, false, "set spec.environmentRef"},
		"a language without an interpreter": {
			both(runs(code("Lua", "print(1)")), under(languages("lua"))), v1alpha1.ReasonInvalidEnvironment, false, `spec.interpreters["lua"]`,
		},
		"code without a language": {
			both(runs(tool("run_code", `{"code":"1"}`)), under(languages([]string{}...))), v1alpha1.ReasonInvalidEnvironment, false, "set the argument language",
		},
		"an interpreter of a language that isn't in lower case": {
			both(runs(code("Python", "print(1)")), func(s *decide.Snapshot) {
				s.Named.Spec.Interpreters = map[string]v1alpha1.CommandPrefix{"Python": {"python3", "-I"}}
			}), v1alpha1.ReasonInvalidEnvironment, false, `write "python"`,
		},
		"a policy that doesn't exist": {
			both(func(s *decide.Snapshot) { s.Policies.Named = nil }), v1alpha1.ReasonInvalidPolicy, false, `no ExecutionPolicy "policy", which ExecutionEnvironment "env" names`,
		},
		"a policy that doesn't exist, where there is a default": {
			both(func(s *decide.Snapshot) {
				s.Policies = decide.Policies{Defaults: []v1alpha1.ExecutionPolicy{*policy("default", open())}}
			}), v1alpha1.ReasonInvalidPolicy, false, `no ExecutionPolicy "policy"`,
		},
		"two default policies": {
			both(func(s *decide.Snapshot) {
				s.Named.Spec.PolicyRef, s.Policies = nil, decide.Policies{Defaults: make([]v1alpha1.ExecutionPolicy, 2)}
			}), v1alpha1.ReasonInvalidPolicy, false, "2 ExecutionPolicies are annotated",
		},
		"a policy that doesn't compile": {both(under(v1alpha1.ExecutionPolicySpec{Access: "Anybody"})), v1alpha1.ReasonInvalidPolicy, false, "the policy does not compile: spec.access"},
	}
}

// guardRefusals are those of the guards; in package guards each has more cases.
func guardRefusals() map[string]refusalCase {
	rbac := under(v1alpha1.ExecutionPolicySpec{Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}})
	listed := open()
	listed.Shell.Commands = v1alpha1.ShellAllowlisted
	listed.Binaries = &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Enforcement: v1alpha1.EnforcementName, Allowed: []string{"env", "ls"}}
	brief := open()
	brief.Code = &v1alpha1.CodePolicy{MaxExecutionMilliseconds: ptr.To(int64(1000))}
	return map[string]refusalCase{
		"an empty program":               {both(runs(program(" "))), v1alpha1.ReasonEmptyCommand, true, ""},
		"a requester that may not":       {both(rbac), v1alpha1.ReasonAgentNotAllowed, true, `"alice" may not use the tool "bash"`},
		"a requester without a name":     {both(rbac, func(s *decide.Snapshot) { s.Call.Spec.RequestedBy = nil }), v1alpha1.ReasonAgentNotAllowed, true, "unknown"},
		"a requester nobody vouches for": {both(rbac, allowed, unvouched("MutatingAdmissionPolicy x")), v1alpha1.ReasonAgentNotAllowed, true, "not in force: MutatingAdmissionPolicy x. Install config/admission"},
		"a rule that is true":            {both(under(withRules([]v1alpha1.PolicyRule{{Name: "make", Expression: "action.command == 'make'", Effect: v1alpha1.RuleDeny, Message: "use ninja"}}))), v1alpha1.ReasonDeniedByRule, true, `rule "make" denies the call: use ninja`},
		"a path upwards":                 {both(runs(program("a..b"))), v1alpha1.ReasonBinaryPathTraversal, true, ""},
		"a path":                         {both(runs(program("/bin/ls"))), v1alpha1.ReasonBinaryNotBareName, true, ""},
		"a program that isn't listed":    {both(under(listed), runs(program("id"))), v1alpha1.ReasonBinaryNotAllowed, true, ""},
		"a metacharacter":                {both(runs(program("ls", "a|b"))), v1alpha1.ReasonArgumentNotAllowed, true, ""},
		"a protected variable":           {both(func(s *decide.Snapshot) { s.Call.Spec.Env = []v1alpha1.CallEnvVar{{Name: "PATH"}} }), v1alpha1.ReasonEnvNotAllowed, true, "PATH"},
		"a shell where none may run":     {both(under(v1alpha1.ExecutionPolicySpec{Access: v1alpha1.AccessOpen})), v1alpha1.ReasonShellDisabled, true, ""},
		"a script that runs another":     {both(under(listed), runs(shell("ls; id"))), v1alpha1.ReasonShellCommandNotAllowed, true, ""},
		"a script nobody can read":       {both(under(listed), runs(shell("echo '"))), v1alpha1.ReasonShellNotParseable, true, ""},
		"a shell that reads otherwise": {
			both(under(listed), runs(shell("ls")), func(s *decide.Snapshot) { s.Named.Spec.Shell = []string{"zsh", "-c"} }), v1alpha1.ReasonShellCommandNotAllowed, true, "",
		},
		"code where none may run":      {both(under(v1alpha1.ExecutionPolicySpec{Access: v1alpha1.AccessOpen, Code: &v1alpha1.CodePolicy{Enabled: ptr.To(false)}}), runs(code("python", ""))), v1alpha1.ReasonCodeDisabled, true, ""},
		"a language that isn't listed": {both(runs(code("ruby", ""))), v1alpha1.ReasonLanguageNotAllowed, true, ""},
		"a module":                     {both(runs(code("python", "import os"))), v1alpha1.ReasonModuleNotAllowed, true, ""},
		"network where there is none":  {both(runs(v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: "python", NetworkAccess: ptr.To(true)}})), v1alpha1.ReasonNetworkNotAllowed, true, ""},
		"more time than there is":      {both(under(brief), runs(code("python", "")), wants(2)), v1alpha1.ReasonExecutionTimeTooLong, true, ""},
		"a source that is too long":    {both(runs(code("python", strings.Repeat("#", 65537)))), v1alpha1.ReasonSourceTooLarge, true, ""},
		"a tool that nobody knows":     {both(runs(tool("fly", `{}`))), v1alpha1.ReasonUnknownTool, true, `"fly"`},
		"arguments that don't fit":     {both(runs(tool("bash", `{}`))), v1alpha1.ReasonInvalidArguments, true, "command"},
		"no action":                    {both(runs(v1alpha1.ToolCallSpec{})), v1alpha1.ReasonInvalidArguments, true, "exactly one"},
		"two actions":                  {both(runs(v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{}, Code: &v1alpha1.CodeAction{}})), v1alpha1.ReasonInvalidArguments, true, "exactly one"},
	}
}

func TestEveryRefusalIsReached(t *testing.T) {
	t.Parallel()
	reached := map[string]bool{}
	for _, cases := range []map[string]refusalCase{contextRefusals(), guardRefusals(), sessionRefusals()} {
		for name, c := range cases {
			s := snapshot(c.change...)
			refusal := refusalOf(t, s)
			context := s.Context
			if s.Call.Spec.SessionRef != nil {
				context = decide.Context{}
				if s.Session.Origin != nil {
					context = s.Session.Origin.Context
				}
			}
			if env := context.Effective(); env != nil && refusal.Environment != env.Name || env == nil && refusal.Environment != "" {
				t.Errorf("%s: the environment is said to be %q", name, refusal.Environment)
			}
			if refusal.Reason != c.reason || refusal.Denied != c.denied || !strings.Contains(refusal.Message, c.contains) {
				t.Errorf("%s: got %+v, want %s with %q, denied: %t", name, refusal, c.reason, c.contains, c.denied)
			}
			if !strings.HasPrefix(refusal.Error(), c.reason+": ") {
				t.Errorf("%s: the error reads %q", name, refusal.Error())
			}
			reached[refusal.Reason] = true
		}
	}
	for _, reason := range denialReasons(t) {
		// A requester's budget is the controller's to keep, GuardError ends what stays undecided, and people's decisions come later.
		later := []string{v1alpha1.ReasonBudgetExceeded, v1alpha1.ReasonGuardError, v1alpha1.ReasonApprovalDenied, v1alpha1.ReasonApprovalExpired}
		if !reached[reason] && !slices.Contains(later, reason) {
			t.Errorf("no case is refused for %s", reason)
		}
	}
}

// denialReasons reads from the API's source the reasons of a call that was denied.
func denialReasons(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../api/v1alpha1/conditions.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || !strings.HasPrefix(group.Doc.Text(), "Reasons of a ToolCall that was denied") {
			continue
		}
		for _, spec := range group.Specs {
			if value, ok := spec.(*ast.ValueSpec).Values[0].(*ast.BasicLit); ok {
				reasons = append(reasons, strings.Trim(value.Value, `"`))
			}
		}
	}
	if len(reasons) < 10 {
		t.Fatalf("only %q are listed as reasons of a denial", reasons)
	}
	return reasons
}

// Where several things are wrong, the same one is said each time, and the user's environment comes before the call.
func TestTheFirstFaultIsTheOneThatIsSaid(t *testing.T) {
	t.Parallel()
	all := contextRefusals()
	order := []string{
		"an environment that doesn't exist", "a skill that doesn't exist", "two default environments beside the named one", "a policy that doesn't exist",
	}
	var changes []change
	for _, name := range slices.Backward(order) {
		changes = append(changes, all[name].change...)
		if got := refusalOf(t, snapshot(append(changes, runs(tool("fly", `{}`)))...)).Reason; got != all[name].reason {
			t.Errorf("with %s, and what comes after it: %s", name, got)
		}
	}
}

func TestAnAuthorizerThatFailedHasNotSaidNo(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer     authorizationv1.SubjectAccessReviewStatus
		may, fails bool
	}{
		"yes": {answer: authorizationv1.SubjectAccessReviewStatus{Allowed: true}, may: true},
		"yes, though one authorizer failed": {
			answer: authorizationv1.SubjectAccessReviewStatus{Allowed: true, EvaluationError: "x"}, may: true,
		},
		"nobody said yes":          {answer: authorizationv1.SubjectAccessReviewStatus{Reason: "RBAC: role not found"}},
		"no":                       {answer: authorizationv1.SubjectAccessReviewStatus{Denied: true}},
		"one authorizer failed":    {answer: authorizationv1.SubjectAccessReviewStatus{EvaluationError: "x"}, fails: true},
		"one failed and denied so": {answer: authorizationv1.SubjectAccessReviewStatus{Denied: true, EvaluationError: "x"}, fails: true},
	} {
		if may, err := decide.ReviewAnswer(&tc.answer); may != tc.may || (err != nil) != tc.fails {
			t.Errorf("%s: may %t, %v", name, may, err)
		}
	}
}

func TestAnEditedCallIsRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		generation int64
		cancel     bool
		refused    bool
	}{
		{"never changed", 1, false, false},
		{"not yet stored", 0, false, false},
		{"cancelled", 2, true, false},
		{"created cancelled", 1, true, false},
		{"changed", 2, false, true},
		{"changed often", 9, false, true},
	} {
		call := &v1alpha1.ToolCall{}
		call.Generation, call.Spec.Cancel = tc.generation, tc.cancel
		refusal := decide.Edited(call)
		if got := refusal != nil; got != tc.refused || got && !refusal.Denied {
			t.Errorf("%s: got %v", tc.name, refusal)
		}
	}
}

func TestACancelledCallSaysThatItWasRestored(t *testing.T) {
	t.Parallel()
	for mark, want := range map[string]string{
		"": "cancelled before its command started", v1alpha1.RestoredRequester: "named another user",
		v1alpha1.RestoredStatus: "the status of a call that had ended", v1alpha1.RestoredTool: "a tool that restores",
		"what a user wrote": "a tool that restores",
	} {
		call := &v1alpha1.ToolCall{}
		call.Annotations = map[string]string{v1alpha1.AnnotationRestored: mark}
		if got := decide.Cancelled(call); !strings.Contains(got, want) || mark != "" && strings.Contains(got, mark) {
			t.Errorf("%q: %s", mark, got)
		}
	}
}
