package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/calls"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestMain(m *testing.M) { os.Exit(plugintest.Main(m, withCalls)) }

// withCalls are the tested commands, and those that make the calls that tests need.
func withCalls(c *cli.CLI) []*cobra.Command { return slices.Concat(Commands(c), calls.Commands(c)) }

// manifest is a policy that lets shells run and denies what a rule is true for, with examples.
func manifest(name, rule, examples string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: toolcall.dev/v1alpha1
kind: ExecutionPolicy
metadata: {name: %s}
spec:
  shell: {enabled: true}
  rules:
  - {name: r, effect: Deny, message: not here, expression: %q}
  examples:
%s`, name, rule, examples)
}

const (
	listAllowed = "  - {name: list, call: {shell: {command: ls}}, expect: Allow}\n"
	pushDenied  = "  - {name: push, call: {shell: {command: git push}}, expect: Deny, reason: DeniedByRule}\n"
	noPush      = `action.commands.exists(c, c.name == "git" && "push" in c.args)`
)

// written is a file with a text.
func written(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func run(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	return plugintest.Run("", append([]string{"--kubeconfig", plugintest.Offline(t), "policy"}, args...)...)
}

func TestTestJudgesExamples(t *testing.T) {
	t.Parallel()
	good := written(t, manifest("p", noPush, listAllowed+pushDenied))
	out, errs, code := run(t, "test", good)
	if code != 0 || errs != "" || !strings.Contains(out, "push     Deny (DeniedByRule)  Deny (DeniedByRule)  ok") {
		t.Errorf("exit code %d:\n%s%s", code, out, errs)
	}
	bad := written(t, manifest("q", "false", listAllowed+pushDenied))
	out, errs, code = run(t, "test", good, bad)
	if code != 1 || !strings.Contains(out, "q       push     Deny (DeniedByRule)  Allow") || !strings.Contains(errs, "1 of 4 examples") {
		t.Errorf("exit code %d:\n%s%s", code, out, errs)
	}
	out, _, code = run(t, "test", "-o", "json", bad)
	if code != 1 || !strings.Contains(out, `"got": "Allow"`) || !strings.Contains(out, `"met": false`) {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestFilesThatCanNotBeTested(t *testing.T) {
	t.Parallel()
	for want, text := range map[string]string{
		"there is no ExecutionPolicy":                              "kind: Namespace\napiVersion: v1\n",
		`document 1: ExecutionPolicy p: unknown field "spec.shel"`: "apiVersion: toolcall.dev/v1alpha1\nkind: ExecutionPolicy\nmetadata: {name: p}\nspec: {shel: {}}\n",
		"document 1":                        "a: [",
		"undeclared reference to 'nothing'": manifest("p", "nothing", listAllowed),
		"p has no spec.examples":            manifest("p", "false", ""),
		"the file has more than":            strings.Repeat("# comment\n", maxFile/10+1),
		`spec.examples[e]: call: it is not the spec of a ToolCall`: manifest("p", "false", "  - {name: e, call: {shel: 1}, expect: Allow}\n"),
	} {
		if out, errs, code := run(t, "test", written(t, text)); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %.300s%.300s", want, code, out, errs)
		}
	}
	if _, errs, code := run(t, "test", "/nowhere/policy.yaml"); code != 1 || !strings.Contains(errs, "no such file") {
		t.Errorf("no file: exit code %d, %s", code, errs)
	}
}

// A list is as good as its objects one by one.
func TestTestReadsLists(t *testing.T) {
	t.Parallel()
	items := "items:\n"
	for object := range strings.SplitSeq(manifest("p", noPush, listAllowed+pushDenied), "---\n") {
		items += "- " + strings.ReplaceAll(object, "\n", "\n  ") + "\n"
	}
	for _, list := range []string{"apiVersion: v1\nkind: List\n", "apiVersion: toolcall.dev/v1alpha1\nkind: ExecutionPolicyList\n"} {
		out, errs, code := run(t, "test", written(t, list+items))
		if code != 0 || errs != "" || !strings.Contains(out, "push     Deny (DeniedByRule)  Deny (DeniedByRule)  ok") {
			t.Errorf("%s: exit code %d:\n%s%s", list, code, out, errs)
		}
	}
	wrong := "apiVersion: v1\nkind: List\nitems: [{apiVersion: toolcall.dev/v1alpha1, kind: ExecutionPolicy, metadata: {name: p}, spec: {shel: {}}}]\n"
	if _, errs, code := run(t, "test", written(t, wrong)); code != 1 || !strings.Contains(errs, `unknown field "spec.shel"`) {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestErrorsOfPolicies(t *testing.T) {
	t.Parallel()
	forbidden, other := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "y", errors.New("no")), errors.New("EOF")
	for want, err := range map[string]error{
		"you need permission to get executionpolicies: bind the ClusterRole toolcall-policy-viewer with a ClusterRoleBinding": forbidden,
		"get executionpolicies: EOF": other,
	} {
		if got := explain("get executionpolicies", err); !strings.Contains(got.Error(), want) || !errors.Is(got, err) {
			t.Errorf("got %v", got)
		}
	}
}

func TestStandardInputIsReadOnce(t *testing.T) {
	t.Parallel()
	for _, line := range [][]string{{"diff", "-", "-"}, {"test", "-", "policy.yaml", "-"}} {
		if out, errs, code := run(t, line...); code != 1 || out != "" || errs != "error: standard input (-) can be read once: name a file in place of the others\n" {
			t.Errorf("%q: exit code %d: %s%s", line, code, out, errs)
		}
	}
}

func TestDiffShowsWhatComesOutOtherwise(t *testing.T) {
	t.Parallel()
	old := written(t, manifest("p", noPush, listAllowed+pushDenied))
	lax := written(t, manifest("p", "false", "  - {name: list, call: {shell: {command: ls}}, expect: Allow}\n  - {name: code, call: {code: {language: python, source: 'print(1)'}}, expect: Allow}\n"))
	out, errs, code := run(t, "diff", old, lax)
	if code != 0 || !strings.Contains(errs, "3 examples judged, 1 come out otherwise") || !strings.Contains(out, `push     old  Deny (DeniedByRule)  Allow  the policy's rule "r" denies the call: not here`) || strings.Contains(out, "list") {
		t.Errorf("exit code %d:\n%s%s", code, out, errs)
	}
	if out, errs, code = run(t, "diff", old, old); code != 0 || out != "" || !strings.Contains(errs, "2 examples judged, 0") {
		t.Errorf("the same: exit code %d:\n%s%s", code, out, errs)
	}
}

func TestReplayJudgesTheCallsOfTheCluster(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) { p.Access = v1alpha1.AccessOpen })
	f.Environment("tools", true)
	for name, command := range map[string]string{"list": "ls", "push": "git push"} {
		f.Run("run", "--detach", "--name", name, "--shell", command).Expect(t, 0)
	}
	f.Run("run", "--detach", "--name", "elsewhere", "--environment", "gone", "--shell", "git push").Expect(t, 0)
	strict := written(t, manifest(f.Namespace, noPush, listAllowed))
	got := f.Run("policy", "replay", "--policy", strict)
	got.Expect(t, 0)
	if alone := f.Run("replay", "--policy", strict); alone != got {
		t.Errorf("kubectl toolcall replay: %+v", alone)
	}
	if !strings.Contains(got.Err, "2 calls judged") || !strings.Contains(got.Err, "1 come out otherwise") || !strings.Contains(got.Err, "1 calls not judged: their environment is gone") {
		t.Errorf("it says %s", got.Err)
	}
	if !strings.Contains(got.Out, "push") || !strings.Contains(got.Out, "Deny (DeniedByRule)") || strings.Contains(got.Out, "list") {
		t.Errorf("it shows %s", got.Out)
	}
	other := written(t, manifest("other", noPush, listAllowed))
	if got := f.Run("policy", "replay", "--policy", other); !strings.Contains(got.Err, "0 calls judged") || !strings.Contains(got.Err, "2 calls not judged") {
		t.Errorf("a policy of no environment: %s", got.Err)
	}
	if got := f.Run("policy", "replay", "--all", "-o", "json", "--policy", other); !strings.Contains(got.Out, `"judged": 2`) || !strings.Contains(got.Out, `"then": "Deny (DeniedByRule)"`) {
		t.Errorf("all the same: %s%s", got.Out, got.Err)
	}
	if got := f.Run("policy", "diff", f.Namespace, strict); !strings.Contains(got.Err, "1 examples judged, 0") {
		t.Errorf("a policy of the cluster: %s%s", got.Out, got.Err)
	}
}

// Of a session that is gone, or was replaced, nobody knows the labels.
func TestReplayKnowsTheLabelsOfSessions(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) { p.Access = v1alpha1.AccessOpen })
	f.Environment("tools", true)
	f.Session("work", func(s *v1alpha1.ToolSession) { s.Labels = map[string]string{"untrusted": ""} })
	for name, session := range map[string]v1alpha1.SessionReference{
		"named": {Name: "work"}, "bound": {Name: "work", UID: string(f.GetSession("work").UID)}, "replaced": {Name: "work", UID: "another"}, "gone": {Name: "gone"},
	} {
		call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: name}}
		call.Spec.Shell, call.Spec.SessionRef = &v1alpha1.ShellAction{Command: "ls"}, &session
		f.Make(call)
	}
	rule := `session != null && "untrusted" in session.labels`
	got := f.Run("policy", "replay", "--policy", written(t, manifest(f.Namespace, rule, listAllowed)))
	got.Expect(t, 0)
	for name, denied := range map[string]bool{"named": true, "bound": true, "replaced": false, "gone": false} {
		if strings.Contains(got.Out, name) != denied {
			t.Errorf("call %s, denied %t: %s%s", name, denied, got.Out, got.Err)
		}
	}
}

// A call that waits in a session is judged in the environment of the session, and not in the namespace's default one.
func TestReplayKnowsTheEnvironmentsOfSessions(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) { p.Access = v1alpha1.AccessOpen })
	f.Environment("tools", true)
	f.Make(&v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "other"},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "i", PolicyRef: &v1alpha1.PolicyReference{Name: f.Namespace + "-other"}},
	})
	f.Session("beside", func(s *v1alpha1.ToolSession) { s.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "other"} })
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "waits"}}
	call.Spec.Shell, call.Spec.SessionRef = &v1alpha1.ShellAction{Command: "ls"}, &v1alpha1.SessionReference{Name: "beside"}
	f.Make(call)
	f.Run("policy", "replay", "--policy", written(t, manifest(f.Namespace, noPush, listAllowed))).Expect(t, 0,
		"0 calls judged in namespace "+f.Namespace, "1 calls not judged: their environment uses another policy")
}

// generated are calls of many kinds, and what they are judged with.
func generated(t testing.TB, n int) (*judge, []v1alpha1.ToolCall) {
	t.Helper()
	policies, err := Parse(strings.NewReader(manifest("p", noPush, listAllowed)))
	if err != nil {
		t.Fatal(err)
	}
	j, err := newJudge(&policies[0], false)
	if err != nil {
		t.Fatal(err)
	}
	env := v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "env"}}
	env.Spec.PolicyRef = &v1alpha1.PolicyReference{Name: "p"}
	old := policies[0].DeepCopy()
	old.Spec.Rules = nil
	j.environments, j.policies = []v1alpha1.ExecutionEnvironment{env}, newSet([]v1alpha1.ExecutionPolicy{*old})
	list := make([]v1alpha1.ToolCall, n)
	for i := range list {
		c := &list[i]
		c.Namespace, c.Name = "ns", fmt.Sprint("call-", i)
		c.Spec.EnvironmentRef, c.Spec.RequestedBy = &v1alpha1.LocalReference{Name: "env"}, &v1alpha1.Requester{Username: "agent"}
		switch i % 5 {
		case 0:
			c.Spec.Shell = &v1alpha1.ShellAction{Command: "git fetch && git push origin main | tail -n 3"}
		case 1:
			c.Spec.Code = &v1alpha1.CodeAction{Language: "python", Source: strings.Repeat("import json\nprint(json.dumps({}))\n", 50)}
		case 2:
			c.Spec.Structured = &v1alpha1.StructuredAction{Binary: "git", Args: []string{"push", "origin"}}
		case 3:
			c.Spec.Shell = &v1alpha1.ShellAction{Command: strings.Repeat("make test 2>&1 | tee log; ", 20)}
			c.Spec.EnvironmentRef, c.Spec.SessionRef = nil, &v1alpha1.SessionReference{Name: "s"}
			c.Status.Environment = &v1alpha1.ResolvedEnvironment{Name: "env"}
		default:
			c.Spec.File = &v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "/workspace/a", Content: ptr.To("x")}
		}
	}
	return j, list
}

func TestGeneratedCallsAreJudgedUnderBothPolicies(t *testing.T) {
	t.Parallel()
	j, list := generated(t, 50)
	r := &replayed{}
	for i := range list {
		r.add(j, &list[i])
	}
	if r.Judged != 50 || r.Changed != 20 || r.Changes[0].Now != "Allow" || r.Changes[0].Then != "Deny (DeniedByRule)" {
		t.Errorf("got %+v", r)
	}
}

// 10,000 calls are to take 5 s.
func BenchmarkReplay(b *testing.B) {
	j, list := generated(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		r := &replayed{}
		for i := range list {
			r.add(j, &list[i])
		}
		if r.Judged != len(list) {
			b.Fatal(r.Judged)
		}
	}
}
