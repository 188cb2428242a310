package environments

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/policy"
	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestSuspendAndResume(t *testing.T) {
	t.Parallel()
	if _, errs, code := plugintest.CommandAt(plugintest.Offline(t), "env", "suspend", "a", "-o", "toml"); code != 1 || !strings.Contains(errs, "unable to match a printer") {
		t.Errorf("exit code %d, %q", code, errs)
	}
	f := plugintest.New(t)
	f.Policy()
	f.Environment("a", true)
	f.Environment("b", false)
	f.Run("env", "suspend", "a", "b").Expect(t, 0, "a: suspended b: suspended")
	f.Run("env", "suspend", "a").Expect(t, 0, "a: suspended")
	if !f.ReadEnvironment("a").Spec.Suspend || !f.ReadEnvironment("b").Spec.Suspend {
		t.Error("an environment is not suspended")
	}
	f.Run("env", "list").Expect(t, 0, "Unknown, suspended")
	f.Run("check", "--", "ls").Expect(t, 0, "Allowed: yes", "Environment: a (the namespace's default), suspended: the call would wait")
	f.Run("env", "resume", "a").Expect(t, 0, "a: resumed")
	f.Run("env", "suspend", "b", "-o", "yaml").Expect(t, 0, "kind: ExecutionEnvironment", "name: b", "suspend: true")
	f.Run("env", "suspend", "b", "-o", "name").Expect(t, 0, "executionenvironment.toolcall.dev/b")
	f.Run("env", "suspend", "b", "-o", "toml").Expect(t, 1, "unable to match a printer")
	if f.ReadEnvironment("a").Spec.Suspend || !f.ReadEnvironment("b").Spec.Suspend {
		t.Error("another environment was resumed")
	}
}

// In an incident, one name that is wrong doesn't keep the others from being suspended.
func TestSuspendGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Environment("a", false)
	f.Run("env", "suspend", "none", "a").Expect(t, 1, "a: suspended", `environment none not found in namespace "`+f.Namespace)
	if !f.ReadEnvironment("a").Spec.Suspend {
		t.Error("the environment is not suspended")
	}
}

// Nor does an output that is closed, such as a pipe to head, or a template that an object doesn't fit.
func TestSuspendAndCancelGoOnAfterAnErrorOfPrinting(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Environment("a", false)
	f.Environment("b", false)
	f.Labelled("first", "job=a")
	f.Labelled("second", "job=a")
	const template = "-o=jsonpath={.missing.field}"
	f.Run("env", "suspend", "a", "b", template, "--allow-missing-template-keys=false").Expect(t, 1, "missing is not found")
	if !f.ReadEnvironment("a").Spec.Suspend || !f.ReadEnvironment("b").Spec.Suspend {
		t.Error("an environment is not suspended")
	}
	f.Run("cancel", "first", "second", template, "--allow-missing-template-keys=false").Expect(t, 1, "missing is not found")
	if !f.Call("first").Spec.Cancel || !f.Call("second").Spec.Cancel {
		t.Error("a call is not cancelled")
	}
}

func TestSuspendNeedsPermission(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Environment("a", false)
	user := f.User([]string{"toolcall-user"}, "ls")
	f.Run("env", "suspend", "a", "--as", user).Expect(t, 1, "you need permission to patch executionenvironments", "toolcall-admin")
	// A role that is bound in a namespace doesn't help with all of them.
	f.Run("env", "list", "-A", "--as", user).Expect(t, 1, "in all namespaces: the ClusterRole toolcall-user grants it, bound with a ClusterRoleBinding")
	if f.ReadEnvironment("a").Spec.Suspend {
		t.Error("the environment is suspended")
	}
	for _, line := range []string{"env suspend", "env resume", "env suspend --"} {
		f.Run(strings.Fields(line)...).Expect(t, 1, "specify the names of the environments")
	}
}

func TestEnvironmentsAreListed(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Run("env", "list").Expect(t, 0, "No environments found in namespace "+f.Namespace+". Calls need one to run in.")
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"ls", "git"}}
	})
	f.Environment("main", true)
	f.Environment("other", false)
	f.Make(&v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "strange"},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "example.com/tools:2", PolicyRef: &v1alpha1.PolicyReference{Name: "no-such-policy"}},
	})
	f.SetReady("main", metav1.ConditionTrue, "Ready", &v1alpha1.WarmStatus{Ready: 1, Desired: 2})
	f.SetReady("other", metav1.ConditionFalse, "DuplicateDefault", nil)
	got := f.Run("env", "list")
	lines := strings.Split(strings.TrimSpace(got.Out), "\n")
	for i, want := range []string{
		"NAME IMAGE DEFAULT POLICY READY WARM ALLOWS",
		"main example.com/tools:1 yes " + f.Namespace + " True 1/2 ls, git; shell; code in python",
		"other example.com/tools:1 - " + f.Namespace + " False (DuplicateDefault) - ls, git; shell; code in python",
		`strange example.com/tools:2 - no-such-policy Unknown - nothing: InvalidPolicy: there is no ExecutionPolicy "no-such-policy", which ExecutionEnvironment "strange" names`,
	} {
		if i >= len(lines) || strings.Join(strings.Fields(lines[i]), " ") != want {
			t.Errorf("line %d isn't %q in\n%s", i, want, got.Out)
		}
	}
	f.Run("env", "list", "-A").Expect(t, 0, "NAMESPACE NAME", f.Namespace+" main")
	f.Run("env", "list", "-o", "name").Expect(t, 0, "executionenvironment.toolcall.dev/main executionenvironment.toolcall.dev/other")
	f.Run("env", "list", "-o", "yaml").Expect(t, 0, "kind: ExecutionEnvironmentList")
	f.Run("env", "list", "-o", "toml").Expect(t, 1, "unable to match a printer")
	f.Run("env", "list", "--as", "nobody").Expect(t, 1, "environments:", "forbidden")
	f.Run("env").Expect(t, 0, "Available Commands", "suspend")
}

func TestPolicyThatAppliesByDefault(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	policy, err := policy.ReadSet(t.Context(), f.Client).For(&v1alpha1.ExecutionEnvironment{})
	if err != nil || policy != nil && policy.Annotations[v1alpha1.AnnotationDefaultPolicy] != "true" {
		t.Errorf("got %v, %v", policy, err)
	}
}

func TestSummariesOfWarmPools(t *testing.T) {
	t.Parallel()
	for want, status := range map[string]*v1alpha1.WarmStatus{"": nil, "0/3": {Desired: 3}, "3/3": {Ready: 3, Desired: 3}} {
		env := &v1alpha1.ExecutionEnvironment{Status: v1alpha1.ExecutionEnvironmentStatus{Warm: status}}
		if got := Warm(env); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A user without permission to read policies learns what the operator decides under them.
func TestCheckWithoutPolicies(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy()
	f.Environment("tools", true)
	user := f.User([]string{"toolcall-user"}, "ls")
	agent := f.As(user)
	check := func(args ...string) plugintest.Printed { return agent(append([]string{"check"}, args...)...) }
	check("--environment", "none", "--", "ls").Expect(t, 125, "EnvironmentNotFound", "Allowed: no, the call would fail before it starts")
	check("--skill", "none", "--", "ls").Expect(t, 125, "SkillNotFound")
	check("--tool", "teleport").Expect(t, 126, "UnknownTool", "Allowed: no, the call would be denied", "Policy: "+f.Namespace)
	check("--", "ls").Expect(t, 0, "Allowed: yes", "ls, which you may use")
	check("--", "a/b").Expect(t, 126, "AgentNotAllowed")
	check("--shell", "ls").Expect(t, 126, "bash, which you may not use")
	f.Environment("second", true)
	check("--", "ls").Expect(t, 125, "InvalidEnvironment", `["second" "tools"]`)
}

// check shows with which variables, limits and network a call would run.
func TestCheckShowsTheContext(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Code = &v1alpha1.CodePolicy{Languages: []string{}, NetworkAccess: ptr.To(true)}
		p.EnvBlocklist = []string{"BLOCKED_"}
		p.Access = v1alpha1.AccessOpen
	})
	f.Environment("tools", true, v1alpha1.EnvVar{Name: "A", Value: "1"}, v1alpha1.EnvVar{Name: "BLOCKED_B", Value: "2"})
	f.Make(&v1alpha1.Skill{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "review"},
		Spec:       v1alpha1.SkillSpec{Env: []v1alpha1.EnvVar{{Name: "S", Value: "3"}}},
	})
	f.Make(&v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "minimal"},
		Spec: v1alpha1.ExecutionEnvironmentSpec{
			Image: "i", InheritEnv: v1alpha1.InheritMinimal, WorkingDir: "/srv", AllowedPaths: []string{"/srv"}, Queues: []string{"batch", "vip"},
			PolicyRef: &v1alpha1.PolicyReference{Name: f.Namespace}, Interpreters: map[string]v1alpha1.CommandPrefix{"lua": {"lua5.4", "-"}},
		},
	})
	check := func(args ...string) plugintest.Printed { return f.Run(append([]string{"check"}, args...)...) }
	check("--skill", "review", "-e", "BLOCKED_C=x", "--", "ls", "a b").Expect(t, 0,
		"Command: ls 'a b'", "A: from the default environment", "S: from the skill", "(removed): BLOCKED_B, BLOCKED_C", "Time limit: 2m0s", "Trusted: false")
	check("--environment", "minimal", "-l", "kueue.x-k8s.io/queue-name=vip", "--", "ls").Expect(t, 0,
		"Directory: /srv", "Allowed paths: /srv", "Queue: vip, chosen by the call", "(inherited): HOME, USER, LOGNAME and PATH of the image", "A: from the default environment")
	check("--environment", "minimal", "--", "ls").Expect(t, 0, "Queue: batch")
	check("--environment", "minimal", "--code", "lua", "-f", "-").Expect(t, 0, "Command: lua5.4 - '<the code>'", "Network: none")
	check("--code", "python", "-f", "-", "--network").Expect(t, 0, "Network: held by the runner: every host outside the cluster that isn't denied")
	check("--code", "cobol", "-f", "-").Expect(t, 125, "InvalidEnvironment", `no interpreter for language "cobol"`)
	check("-w", "/etc", "--", "ls").Expect(t, 0, "Directory: /etc")
}
