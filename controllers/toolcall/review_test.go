package toolcall_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	subresourcesv1alpha1 "toolcall.dev/operator/api/subresources/v1alpha1"
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/denials"
	"toolcall.dev/operator/internal/testing/fixture"
)

// reviewed is a call under a policy, and the reason that it ends with; empty for one that runs.
type reviewed struct {
	policy v1alpha1.ExecutionPolicySpec
	spec   v1alpha1.ToolCallSpec
	reason string
}

func program(binary string, args ...string) v1alpha1.ToolCallSpec {
	return v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: binary, Args: args}}
}

func script(command string) v1alpha1.ToolCallSpec {
	return v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: command}}
}

func snippet(language, source string) v1alpha1.ToolCallSpec {
	return v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: language, Source: source}}
}

// changed is a spec with a change.
func changed(spec v1alpha1.ToolCallSpec, change func(*v1alpha1.ToolCallSpec)) v1alpha1.ToolCallSpec {
	change(&spec)
	return spec
}

func reviewedCalls() map[string]reviewed {
	open := v1alpha1.ExecutionPolicySpec{Access: v1alpha1.AccessOpen, Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}}
	closed := v1alpha1.ExecutionPolicySpec{Access: v1alpha1.AccessOpen, Code: &v1alpha1.CodePolicy{Enabled: ptr.To(false)}}
	listed := v1alpha1.ExecutionPolicySpec{
		Access:   v1alpha1.AccessOpen,
		Shell:    &v1alpha1.ShellPolicy{Enabled: ptr.To(true), Commands: v1alpha1.ShellAllowlisted},
		Binaries: &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Enforcement: v1alpha1.EnforcementName, Allowed: []string{"ls"}},
	}
	brief := v1alpha1.ExecutionPolicySpec{Access: v1alpha1.AccessOpen, Code: &v1alpha1.CodePolicy{MaxExecutionMilliseconds: ptr.To(int64(1000))}}
	lua := v1alpha1.ExecutionPolicySpec{Access: v1alpha1.AccessOpen, Code: &v1alpha1.CodePolicy{Languages: []string{"lua"}}}
	ruled := v1alpha1.ExecutionPolicySpec{Access: v1alpha1.AccessOpen, Rules: []v1alpha1.PolicyRule{
		{Name: "no-git", Expression: `action.binary == "git"`, Effect: v1alpha1.RuleDeny, Message: "not now"},
	}}
	in := func(session string) func(*v1alpha1.ToolCallSpec) {
		return func(s *v1alpha1.ToolCallSpec) { s.SessionRef = &v1alpha1.SessionReference{Name: session} }
	}
	return map[string]reviewed{
		"runs":        {open, script("ls"), ""},
		"empty":       {open, program(" "), v1alpha1.ReasonEmptyCommand},
		"no-right":    {v1alpha1.ExecutionPolicySpec{}, program("git"), v1alpha1.ReasonAgentNotAllowed},
		"upwards":     {open, program("a..b"), v1alpha1.ReasonBinaryPathTraversal},
		"path":        {open, program("/bin/ls"), v1alpha1.ReasonBinaryNotBareName},
		"not-listed":  {listed, program("id"), v1alpha1.ReasonBinaryNotAllowed},
		"argument":    {open, program("ls", "a|b"), v1alpha1.ReasonArgumentNotAllowed},
		"variable":    {open, changed(program("ls"), func(s *v1alpha1.ToolCallSpec) { s.Env = []v1alpha1.CallEnvVar{{Name: "PATH"}} }), v1alpha1.ReasonEnvNotAllowed},
		"no-shell":    {closed, script("ls"), v1alpha1.ReasonShellDisabled},
		"script":      {listed, script("ls; id"), v1alpha1.ReasonShellCommandNotAllowed},
		"unreadable":  {listed, script("echo '"), v1alpha1.ReasonShellNotParseable},
		"no-code":     {closed, snippet("python", "1"), v1alpha1.ReasonCodeDisabled},
		"language":    {open, snippet("ruby", "1"), v1alpha1.ReasonLanguageNotAllowed},
		"module":      {open, snippet("python", "import os"), v1alpha1.ReasonModuleNotAllowed},
		"network":     {open, changed(snippet("python", "1"), func(s *v1alpha1.ToolCallSpec) { s.Code.NetworkAccess = ptr.To(true) }), v1alpha1.ReasonNetworkNotAllowed},
		"time":        {brief, changed(snippet("python", "1"), func(s *v1alpha1.ToolCallSpec) { s.TimeoutSeconds = ptr.To(int32(2)) }), v1alpha1.ReasonExecutionTimeTooLong},
		"source":      {open, snippet("python", strings.Repeat("#", 65537)), v1alpha1.ReasonSourceTooLarge},
		"tool":        {open, v1alpha1.ToolCallSpec{Tool: &v1alpha1.ToolAction{Name: "fly"}}, v1alpha1.ReasonUnknownTool},
		"two-actions": {open, changed(script("ls"), func(s *v1alpha1.ToolCallSpec) { s.Code = &v1alpha1.CodeAction{Language: "python"} }), v1alpha1.ReasonInvalidArguments},
		"interpreter": {lua, snippet("lua", "1"), v1alpha1.ReasonInvalidEnvironment},
		"skill":       {open, changed(script("ls"), func(s *v1alpha1.ToolCallSpec) { s.SkillRef = &v1alpha1.LocalReference{Name: "none"} }), v1alpha1.ReasonSkillNotFound},
		"nowhere":     {open, changed(script("ls"), func(s *v1alpha1.ToolCallSpec) { s.EnvironmentRef = &v1alpha1.LocalReference{Name: "none"} }), v1alpha1.ReasonEnvironmentNotFound},
		"rule":        {ruled, program("git"), v1alpha1.ReasonDeniedByRule},
		"no-session":  {open, changed(script("ls"), in("none")), v1alpha1.ReasonSessionNotFound},
		"others":      {open, changed(script("ls"), in("others")), v1alpha1.ReasonSessionNotAllowed},
		"ended":       {open, changed(script("ls"), in("ended")), v1alpha1.ReasonSessionEnded},
	}
}

// A review says of each call what the controller decides when the call is created: one reading, one function.
func TestAReviewSaysWhatTheControllerDecides(t *testing.T) {
	w := fixture.NewWorld(t)
	asker := w.Asker()
	w.Session("others")
	ended := w.Session("ended")
	w.EditSession(ended, func(s *v1alpha1.ToolSessionSpec) { s.End = true })
	reached := map[string]bool{}
	for name, c := range reviewedCalls() {
		t.Run(name, func(t *testing.T) {
			policy := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-" + name}, Spec: c.policy}
			if err := w.Client.Create(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = w.Client.Delete(context.Background(), policy) })
			w.Environment(name, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.PolicyRef.Name = policy.Name })
			if c.spec.EnvironmentRef == nil && c.spec.SessionRef == nil {
				c.spec.EnvironmentRef = &v1alpha1.LocalReference{Name: name}
			}
			call := w.Asked(asker, name, func(call *v1alpha1.ToolCall) { call.Spec = c.spec })
			who := &user.DefaultInfo{Name: asker, Groups: []string{"system:authenticated"}}
			review, err := w.Reviewer().Review(t.Context(), who, w.Namespace, &subresourcesv1alpha1.ToolCallReviewSpec{Call: c.spec})
			if err != nil {
				t.Fatal(err)
			}
			w.Reconcile(call)
			status := w.Get(call).Status
			reached[c.reason] = true
			if c.reason == "" {
				if !review.Allowed || review.Denial != nil || review.InEffect == nil || !w.HasJob(call) {
					t.Errorf("the review says %+v, the call is %s/%s", review, status.Phase, status.Reason)
				}
				return
			}
			// A status begins its message with a capital letter.
			said := review.Denial
			if review.Allowed || said == nil || said.Phase != status.Phase || said.Reason != status.Reason || !strings.EqualFold(said.Message, status.Message) || said.Reason != c.reason {
				t.Errorf("the review says %+v, the call is %s/%s: %s", said, status.Phase, status.Reason, status.Message)
			}
			if name == "script" && (said.Position == nil || said.Position.Line != 1 || said.Position.Column != 5) || name == "not-listed" && !slices.Equal(said.Alternatives, []string{"ls"}) {
				t.Errorf("the review says %+v", said)
			}
			if env := status.Environment; env != nil && review.Environment != env.Name {
				t.Errorf("the review names the environment %q, the call %q", review.Environment, env.Name)
			}
		})
	}
	for reason := range denials.Rules() {
		// These follow from what else waits, from an authorizer's silence, and from what people decide.
		later := reason == v1alpha1.ReasonBudgetExceeded || reason == v1alpha1.ReasonGuardError || strings.HasPrefix(reason, "Approval")
		if !reached[reason] && !later {
			t.Errorf("no call is denied for %s: add one", reason)
		}
	}
}

// Rules read the labels of a session, of which the cache keeps a few.
func TestARuleReadsTheLabelsOfASession(t *testing.T) {
	w := fixture.NewWorld(t)
	asker := w.Asker()
	w.Grant(fixture.User(asker), "toolsessions", nil, "use")
	policy := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}, Spec: v1alpha1.ExecutionPolicySpec{
		Access: v1alpha1.AccessOpen,
		Rules:  []v1alpha1.PolicyRule{{Name: "untrusted", Expression: `session != null && "untrusted" in session.labels`, Effect: v1alpha1.RuleDeny}},
	}}
	if err := w.Client.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Client.Delete(context.Background(), policy) })
	w.Environment("tools", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.PolicyRef.Name = policy.Name }, fixture.AsDefault)
	many := map[string]string{"untrusted": ""}
	for i := range 30 {
		many[fmt.Sprint("label-", i)] = strings.Repeat("v", 60)
	}
	for name, labels := range map[string]map[string]string{"none": nil, "few": {"untrusted": ""}, "many": many} {
		w.Session(name, func(s *v1alpha1.ToolSession) { s.Labels = labels })
		spec := program("ls")
		spec.SessionRef = &v1alpha1.SessionReference{Name: name}
		who := &user.DefaultInfo{Name: asker, Groups: []string{"system:authenticated"}}
		review, err := w.Reviewer().Review(t.Context(), who, w.Namespace, &subresourcesv1alpha1.ToolCallReviewSpec{Call: spec})
		if err != nil {
			t.Fatal(err)
		}
		isDenied := review.Denial != nil && review.Denial.Reason == v1alpha1.ReasonDeniedByRule
		if isDenied != (labels != nil) || review.Allowed == isDenied {
			t.Errorf("a session with %s labels: %+v, denied for %+v", name, review, review.Denial)
		}
	}
}
