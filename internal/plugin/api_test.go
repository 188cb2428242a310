package plugin

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestAClusterWithoutTheOperator(t *testing.T) {
	t.Parallel()
	for line, p := range plugintest.New(t).Bare {
		want := "this cluster has no ToolCall kind: install the operator, or choose another cluster with --context"
		if strings.Contains(line, "session") {
			want = "this cluster has no ToolSession kind: install "
		}
		if p.Code == 0 || p.Out != "" || !strings.Contains(p.Err, want) {
			t.Errorf("%s: exit code %d, %s%s", line, p.Code, p.Out, p.Err)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"ls", "git"}}
		p.Timeouts = &v1alpha1.TimeoutsPolicy{MaxSeconds: ptr.To(int32(120))}
	})
	secret := &v1alpha1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}
	f.Environment("tools", true, v1alpha1.EnvVar{Name: "FROM_DEFAULT", Value: "private"}, v1alpha1.EnvVar{Name: "AWS_KEY", ValueFrom: secret})
	f.Environment("repo", false, v1alpha1.EnvVar{Name: "TOKEN", ValueFrom: secret}, v1alpha1.EnvVar{Name: "BOTH", Value: "private"})
	user := f.User([]string{"toolcall-user", "toolcall-policy-viewer"}, "ls", "bash", "python")
	for name, c := range map[string]struct {
		args  []string
		code  int
		parts []string
	}{
		"the default environment": {[]string{"--", "ls", "-l"}, 0, []string{
			"Allowed: yes", "Requester: " + user, "ls, which you may use", "tools (the namespace's default)", "Command: ls -l", "Time limit: 2m0s",
			"FROM_DEFAULT: from the default environment", "AWS_KEY: from the default environment", "Trusted: true",
			"HOME: the image's, or /tmp/.home", "PYTHONUNBUFFERED: default, unless the image sets it",
		}},
		"an environment and variables": {[]string{"--environment", "repo", "-e", "BOTH=mine", "-e", "PYTHONUNBUFFERED=0", "-w", "/tmp", "--timeout", "10m", "--shell", "ls | cat"}, 0, []string{
			"Environment: repo", "BOTH: from the call: mine", "PYTHONUNBUFFERED: from the call: 0", "TOKEN: from the environment", "FROM_DEFAULT: from the default environment",
			"(removed): AWS_KEY", "Directory: /tmp", "Time limit: 2m0s", "Command: bash -c 'ls | cat'", "Trusted: false",
		}},
		"a queue that isn't offered":  {[]string{"-l", "kueue.x-k8s.io/queue-name=vip", "--", "ls"}, 0, []string{"Queue: none: the environment doesn't offer vip"}},
		"a snippet":                   {[]string{"--code", "python", "-f", "-"}, 0, []string{"Command: python3", "Network: none"}},
		"a tool without permission":   {[]string{"--", "git", "status"}, 126, []string{"AgentNotAllowed", "git, which you may not use"}},
		"a program that isn't listed": {[]string{"--tool", "exec", "--arguments", `{"mode": "structured", "binary": "id"}`}, 126, []string{"denied"}},
		"an unknown tool":             {[]string{"--tool", "teleport"}, 126, []string{"UnknownTool"}},
		"no such environment":         {[]string{"--environment", "none", "--", "ls"}, 125, []string{"EnvironmentNotFound", "would fail"}},
		"no such skill":               {[]string{"--skill", "none", "--", "ls"}, 125, []string{"SkillNotFound"}},
		"trust without permission":    {[]string{"--trusted", "--", "ls"}, 125, []string{`those who may "trust" executionenvironments`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := f.Run(append([]string{"check", "--as", user}, c.args...)...)
			got.Expect(t, c.code, c.parts...)
			if strings.Contains(got.Out+got.Err, "private") {
				t.Errorf("a value of the environment is shown: %s%s", got.Out, got.Err)
			}
		})
	}
	list := &v1alpha1.ToolCallList{}
	if err := f.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Namespace == f.Namespace {
			t.Errorf("check made call %s", list.Items[i].Name)
		}
	}
}

func TestCheckOfInvalidEnvironmentsAndPolicies(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Run("check", "--", "ls").Expect(t, 125, "NoEnvironment", v1alpha1.AnnotationDefaultEnvironment)
	f.Environment("one", true)
	f.Run("check", "--", "ls").Expect(t, 125, "InvalidPolicy", `there is no ExecutionPolicy "`+f.Namespace)
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"bin/ls"}}
	})
	f.Run("check", "--", "ls").Expect(t, 125, "InvalidPolicy", "binaries.allowed")
	f.Environment("two", true)
	f.Run("check", "--environment", "two", "--", "ls").Expect(t, 125, "InvalidEnvironment", `["one" "two"]`)
}

// check needs no permission to read policies, and names the role that grants what it needs.
func TestCheckNeedsNoPolicies(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy()
	f.Environment("tools", true)
	user := f.User([]string{"toolcall-user"}, "ls")
	agent := f.As(user)
	agent("check", "--", "ls").Expect(t, 0, "Allowed: yes", "ls, which you may use", "Policy: "+f.Namespace)
	agent("env", "list").Expect(t, 0, "tools", "example.com/tools:1", "yes", "(no permission to read policies)")
	f.Run("env", "list").Expect(t, 0, "any program; shell; code in python")
	f.Run("check", "--as", "nobody", "--", "ls").Expect(t, 125, "the ClusterRole toolcall-user grants permission")
}

// With --as, the rights to tools are the other's.
func TestCheckForSomebodyElse(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"ls", "git"}}
	})
	f.Environment("tools", true)
	user := f.User([]string{"toolcall-user"}, "ls", "cat")
	f.Run("check", "--as", user, "--", "ls").Expect(t, 0, "Allowed: yes", "Requester: "+user)
	f.Run("check", "--as", user, "--", "git").Expect(t, 126, "AgentNotAllowed")
	f.Run("check", "--as", user, "--", "cat").Expect(t, 126, "BinaryNotAllowed")
	f.Run("tools", "--as", user).Expect(t, 0, "You may use: cat, ls", "tools yes "+f.Namespace+" RBAC ls no - -")
}

func TestListDescribeWaitAndCancel(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	for _, name := range []string{"good", "bad", "odd"} {
		f.Run("run", "--detach", "--name", name, "--", "ls").Expect(t, 0, name)
	}
	stdout := v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: 3}}
	f.End("good", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseSucceeded, Reason: "Completed", ExitCode: ptr.To(int32(0)), Stdout: "hi\n", Streams: &stdout})
	f.End("bad", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: "BinaryNotAllowed", Message: "not\x1b[31m listed"})
	f.Run("get").Expect(t, 0, "good Succeeded Completed 0", "bad Denied BinaryNotAllowed -", "odd Pending -")
	f.Run("get", "--phase", "denied,pending", "-o", "name").Expect(t, 0, "toolcall.toolcall.dev/bad", "toolcall.toolcall.dev/odd")
	if got := f.Run("get", "--phase", "Succeeded", "-A"); strings.Contains(got.Out, "bad") || !strings.Contains(got.Out, f.Namespace) {
		t.Errorf("got %s", got.Out)
	}
	f.Run("get", "good", "-o", "jsonpath={.status.exitCode}").Expect(t, 0, "0")
	f.Run("get", "-o", "yaml").Expect(t, 0, "kind: ToolCallList", "name: good")
	f.Run("get", "-o", "wide").Expect(t, 0, "REQUESTED-BY")
	f.Run("get", "none").Expect(t, 1, `call none not found in namespace "`+f.Namespace)
	f.Run("get", "-l", "((").Expect(t, 1, "--selector")
	f.Run("logs", "good").Expect(t, 0, "hi")
	f.Run("logs", "bad").Expect(t, 0, "has no recorded output: Denied")
	f.Run("logs", "odd").Expect(t, 0, "has not started")
	f.Run("wait", "good").Expect(t, 0, "good Succeeded Completed exit 0")
	f.Run("wait", "good", "bad", "none").Expect(t, 126, "bad Denied", "none")
	f.Run("wait", "odd", "--timeout", "300ms").Expect(t, 125, "did not finish within --timeout")
	f.Run("describe", "bad").Expect(t, 0, "Denied (BinaryNotAllowed)", "not^[[31m listed")
	f.Run("explain-denial", "good").Expect(t, 1, "was not denied")
	f.Run("explain-denial", "bad").Expect(t, 0, "spec.binaries", "would fail: NoEnvironment")
	f.Run("cancel", "odd", "none").Expect(t, 1, "odd: cancellation requested", "call none not found")
	f.Run("get", "odd", "-o", "jsonpath={.spec.cancel}").Expect(t, 0, "true")
	f.Run("run", "--name", "good", "--", "ls").Expect(t, 125, "a call with a given name runs at most once")
	f.Run("run", "--dry-run=server", "-o", "jsonpath={.spec.requestedBy.username}", "--", "ls").Expect(t, 0, "admin")
	f.Run("run", "--dry-run=server", "--shell", "").Expect(t, 0)
}
