package plugin

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestAClusterWithoutTheOperator(t *testing.T) {
	t.Parallel()
	for _, p := range newFixture(t).bare {
		if p.code == 0 || !strings.Contains(p.err, "this cluster has no ToolCall kind: install the operator, or choose another cluster with --context") {
			t.Errorf("exit code %d, %s%s", p.code, p.out, p.err)
		}
	}
	for _, p := range newFixture(t).bareSessions {
		if p.code == 0 || p.out != "" || !strings.Contains(p.err, "this cluster has no ToolSession kind: install ") {
			t.Errorf("exit code %d, %s%s", p.code, p.out, p.err)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.policy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"ls", "git"}}
		p.Timeouts = &v1alpha1.TimeoutsPolicy{MaxSeconds: ptr.To(int32(120))}
	})
	secret := &v1alpha1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}
	f.environment("tools", true, v1alpha1.EnvVar{Name: "FROM_DEFAULT", Value: "private"}, v1alpha1.EnvVar{Name: "AWS_KEY", ValueFrom: secret})
	f.environment("repo", false, v1alpha1.EnvVar{Name: "TOKEN", ValueFrom: secret}, v1alpha1.EnvVar{Name: "BOTH", Value: "private"})
	user := f.user([]string{"toolcall-user", "toolcall-policy-viewer"}, "ls", "bash", "python")
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
			got := f.run(append([]string{"check", "--as", user}, c.args...)...)
			got.expect(t, c.code, c.parts...)
			if strings.Contains(got.out+got.err, "private") {
				t.Errorf("a value of the environment is shown: %s%s", got.out, got.err)
			}
		})
	}
	list := &v1alpha1.ToolCallList{}
	if err := f.client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Namespace == f.namespace {
			t.Errorf("check made call %s", list.Items[i].Name)
		}
	}
}

func TestCheckOfInvalidEnvironmentsAndPolicies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.run("check", "--", "ls").expect(t, 125, "NoEnvironment", v1alpha1.AnnotationDefaultEnvironment)
	f.environment("one", true)
	f.run("check", "--", "ls").expect(t, 125, "InvalidPolicy", `there is no ExecutionPolicy "`+f.namespace)
	f.policy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"bin/ls"}}
	})
	f.run("check", "--", "ls").expect(t, 125, "InvalidPolicy", "binaries.allowed")
	f.environment("two", true)
	f.run("check", "--environment", "two", "--", "ls").expect(t, 125, "InvalidEnvironment", `["one" "two"]`)
}

// check names the missing permission and the role that grants it.
func TestCheckNamesTheMissingPermission(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.policy()
	f.environment("tools", true)
	user := f.user([]string{"toolcall-user"}, "ls")
	agent := f.as(user)
	got := agent("check", "--", "ls")
	got.expect(t, 125, "Allowed: unknown", "ls, which you may use", "Policy: "+f.namespace, "get executionpolicies", "toolcall-policy-viewer")
	agent("env", "list").expect(t, 0, "tools", "example.com/tools:1", "yes", "(no permission to read policies)")
	f.run("env", "list").expect(t, 0, "any program; shell; code in python")
	f.run("check", "--as", "nobody", "--", "ls").expect(t, 125, "the ClusterRole toolcall-user grants permission")
}

// Who may read policies can ask for somebody who may not: the rights to tools are the other's.
func TestCheckForSomebodyElse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.policy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"ls", "git"}}
	})
	f.environment("tools", true)
	user := f.user([]string{"toolcall-user"}, "ls", "cat")
	f.run("check", "--as", user, "--", "ls").expect(t, 0, "Allowed: yes", "Requester: "+user)
	f.run("check", "--as", user, "--", "git").expect(t, 126, "AgentNotAllowed")
	f.run("check", "--as", user, "--", "cat").expect(t, 126, "BinaryNotAllowed")
	f.run("tools", "--as", user).expect(t, 0, "You may use: cat, ls", "tools yes "+f.namespace+" RBAC ls no - -")
}

func TestListDescribeWaitAndCancel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{"good", "bad", "odd"} {
		f.run("run", "--detach", "--name", name, "--", "ls").expect(t, 0, name)
	}
	stdout := v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: 3}}
	f.end("good", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseSucceeded, Reason: "Completed", ExitCode: ptr.To(int32(0)), Stdout: "hi\n", Streams: &stdout})
	f.end("bad", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: "BinaryNotAllowed", Message: "not\x1b[31m listed"})
	f.run("get").expect(t, 0, "good Succeeded Completed 0", "bad Denied BinaryNotAllowed -", "odd Pending -")
	f.run("get", "--phase", "denied,pending", "-o", "name").expect(t, 0, "toolcall.toolcall.dev/bad", "toolcall.toolcall.dev/odd")
	if got := f.run("get", "--phase", "Succeeded", "-A"); strings.Contains(got.out, "bad") || !strings.Contains(got.out, f.namespace) {
		t.Errorf("got %s", got.out)
	}
	f.run("get", "good", "-o", "jsonpath={.status.exitCode}").expect(t, 0, "0")
	f.run("get", "-o", "yaml").expect(t, 0, "kind: ToolCallList", "name: good")
	f.run("get", "-o", "wide").expect(t, 0, "REQUESTED-BY")
	f.run("get", "none").expect(t, 1, `call none not found in namespace "`+f.namespace)
	f.run("get", "-l", "((").expect(t, 1, "--selector")
	f.run("logs", "good").expect(t, 0, "hi")
	f.run("logs", "bad").expect(t, 0, "has no recorded output: Denied")
	f.run("logs", "odd").expect(t, 0, "has not started")
	f.run("wait", "good").expect(t, 0, "good Succeeded Completed exit 0")
	f.run("wait", "good", "bad", "none").expect(t, 126, "bad Denied", "none")
	f.run("wait", "odd", "--timeout", "300ms").expect(t, 125, "did not finish within --timeout")
	f.run("describe", "bad").expect(t, 0, "Denied (BinaryNotAllowed)", "not^[[31m listed")
	f.run("explain-denial", "good").expect(t, 1, "was not denied")
	f.run("explain-denial", "bad").expect(t, 0, "spec.binaries", "would fail: NoEnvironment")
	f.run("cancel", "odd", "none").expect(t, 1, "odd: cancellation requested", "call none not found")
	f.run("get", "odd", "-o", "jsonpath={.spec.cancel}").expect(t, 0, "true")
	f.run("run", "--name", "good", "--", "ls").expect(t, 125, "a call with a given name runs at most once")
	f.run("run", "--dry-run=server", "-o", "jsonpath={.spec.requestedBy.username}", "--", "ls").expect(t, 0, "admin")
	f.run("run", "--dry-run=server", "--shell", "").expect(t, 0)
}
