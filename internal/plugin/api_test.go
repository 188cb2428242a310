package plugin

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestAClusterWithoutTheOperatorIsNamed(t *testing.T) {
	t.Parallel()
	for _, said := range newWorld(t).bare {
		if said.code == 0 || !strings.Contains(said.err, "this cluster doesn't know ToolCalls: install the operator there, or choose another cluster with --context") {
			t.Errorf("exit code %d, %s%s", said.code, said.out, said.err)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"ls", "git"}}
		p.Timeouts = &v1alpha1.TimeoutsPolicy{MaxSeconds: ptr.To(int32(120))}
	})
	secret := &v1alpha1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}
	w.environment("tools", true, v1alpha1.EnvVar{Name: "FROM_DEFAULT", Value: "private"}, v1alpha1.EnvVar{Name: "AWS_KEY", ValueFrom: secret})
	w.environment("repo", false, v1alpha1.EnvVar{Name: "TOKEN", ValueFrom: secret}, v1alpha1.EnvVar{Name: "BOTH", Value: "private"})
	user := w.user([]string{"toolcall-user", "toolcall-policy-viewer"}, "ls", "bash", "python")
	for name, c := range map[string]struct {
		args  []string
		code  int
		parts []string
	}{
		"the default environment": {[]string{"--", "ls", "-l"}, 0, []string{
			"Allowed: yes", "Caller: " + user, "ls, which you may use", "tools (the namespace's default)", "Command: ls -l", "Time limit: 2m0s",
			"FROM_DEFAULT: from the default environment", "AWS_KEY: from the default environment", "Trusted: true",
		}},
		"an environment and variables": {[]string{"--env", "repo", "-e", "BOTH=mine", "-w", "/tmp", "--timeout", "10m", "--shell", "ls | cat"}, 0, []string{
			"Environment: repo", "BOTH: from the call: mine", "TOKEN: from the environment", "FROM_DEFAULT: from the default environment",
			"(removed): AWS_KEY", "Directory: /tmp", "Time limit: 2m0s", "Command: bash -c 'ls | cat'", "Trusted: false",
		}},
		"a queue that isn't offered":  {[]string{"-l", "kueue.x-k8s.io/queue-name=vip", "--", "ls"}, 0, []string{"Queue: none, since the environment doesn't offer vip"}},
		"a snippet":                   {[]string{"--code", "python", "-f", "-"}, 0, []string{"Command: python3", "Network: none"}},
		"a tool without the right":    {[]string{"--", "git", "status"}, 126, []string{"AgentNotAllowed", "git, which you may not use"}},
		"a program that isn't listed": {[]string{"--tool", "exec", "--arguments", `{"mode": "structured", "binary": "id"}`}, 126, []string{"denied"}},
		"a tool that nobody knows":    {[]string{"--tool", "teleport"}, 126, []string{"UnknownTool"}},
		"no such environment":         {[]string{"--env", "none", "--", "ls"}, 125, []string{"EnvironmentNotFound", "would fail"}},
		"no such skill":               {[]string{"--skill", "none", "--", "ls"}, 125, []string{"SkillNotFound"}},
		"trust without the right":     {[]string{"--trusted", "--", "ls"}, 125, []string{`those who may "trust" executionenvironments`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := w.do(append([]string{"check", "--as", user}, c.args...)...)
			got.says(t, c.code, c.parts...)
			if strings.Contains(got.out+got.err, "private") {
				t.Errorf("a value of the environment is shown: %s%s", got.out, got.err)
			}
		})
	}
	list := &v1alpha1.ToolCallList{}
	if err := w.client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Namespace == w.namespace {
			t.Errorf("check made call %s", list.Items[i].Name)
		}
	}
}

func TestCheckOfWhatIsWrittenWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do("check", "--", "ls").says(t, 125, "NoEnvironment", v1alpha1.AnnotationDefaultEnvironment)
	w.environment("one", true)
	w.do("check", "--", "ls").says(t, 125, "InvalidPolicy", `there is no ExecutionPolicy "`+w.namespace)
	w.policy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"/bin/ls"}}
	})
	w.do("check", "--", "ls").says(t, 125, "InvalidPolicy", "binaries.allowed")
	w.environment("two", true)
	w.do("check", "--env", "two", "--", "ls").says(t, 125, "InvalidEnvironment", `["one" "two"]`)
}

// What the caller may not read is named, with the role that has it.
func TestCheckNamesTheRightThatIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy()
	w.environment("tools", true)
	user := w.user([]string{"toolcall-user"}, "ls")
	got := w.do("check", "--as", user, "--", "ls")
	got.says(t, 125, "Allowed: can't be told", "ls, which you may use", "Policy: "+w.namespace, "get executionpolicies", "toolcall-policy-viewer")
	w.do("env", "list", "--as", user).says(t, 0, "tools", "example.com/tools:1", "yes", "(may not read policies)")
	w.do("env", "list").says(t, 0, "any program; shell; code in python")
	w.do("check", "--as", "nobody", "--", "ls").says(t, 125, "the ClusterRole toolcall-user has the right to")
}

func TestListDescribeWaitAndCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"good", "bad", "odd"} {
		w.do("run", "--detach", "--name", name, "--", "ls").says(t, 0, name)
	}
	stdout := v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: 3}}
	w.end("good", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseSucceeded, Reason: "Completed", ExitCode: ptr.To(int32(0)), Stdout: "hi\n", Streams: &stdout})
	w.end("bad", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: "BinaryNotAllowed", Message: "not\x1b[31m listed"})
	w.do("get").says(t, 0, "good Succeeded Completed 0", "bad Denied BinaryNotAllowed -", "odd Pending -")
	w.do("get", "--phase", "denied,pending", "-o", "name").says(t, 0, "toolcall.toolcall.dev/bad", "toolcall.toolcall.dev/odd")
	if got := w.do("get", "--phase", "Succeeded", "-A"); strings.Contains(got.out, "bad") || !strings.Contains(got.out, w.namespace) {
		t.Errorf("got %s", got.out)
	}
	w.do("get", "good", "-o", "jsonpath={.status.exitCode}").says(t, 0, "0")
	w.do("get", "-o", "yaml").says(t, 0, "kind: ToolCallList", "name: good")
	w.do("get", "-o", "wide").says(t, 0, "REQUESTED-BY")
	w.do("get", "none").says(t, 1, `there is no call none in namespace "`+w.namespace)
	w.do("get", "-l", "((").says(t, 1, "--selector")
	w.do("logs", "good").says(t, 0, "hi")
	w.do("logs", "bad").says(t, 0, "wrote nothing that is known: Denied")
	w.do("logs", "odd").says(t, 0, "hasn't started")
	w.do("wait", "good").says(t, 0, "good Succeeded Completed exit 0")
	w.do("wait", "good", "bad", "none").says(t, 126, "bad Denied", "none")
	w.do("wait", "odd", "--timeout", "300ms").says(t, 125, "has not ended")
	w.do("describe", "bad").says(t, 0, "Denied (BinaryNotAllowed)", "not\uFFFD[31m listed")
	w.do("explain-denial", "good").says(t, 1, "wasn't denied")
	w.do("explain-denial", "bad").says(t, 0, "spec.binaries", "would fail: NoEnvironment")
	w.do("cancel", "odd", "none").says(t, 1, "odd asked to stop", "there is no call none")
	w.do("get", "odd", "-o", "jsonpath={.spec.cancel}").says(t, 0, "true")
	w.do("run", "--name", "good", "--", "ls").says(t, 125, "a name runs at most once")
	w.do("run", "--dry-run=server", "-o", "jsonpath={.spec.requestedBy.username}", "--", "ls").says(t, 0, "admin")
	w.do("run", "--dry-run=server", "--shell", "").says(t, 0)
}
