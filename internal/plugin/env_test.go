package plugin

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// readEnvironment reads an environment.
func (f *fixture) readEnvironment(name string) *v1alpha1.ExecutionEnvironment {
	f.t.Helper()
	env := &v1alpha1.ExecutionEnvironment{}
	if err := f.client.Get(f.t.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, env); err != nil {
		f.t.Fatal(err)
	}
	return env
}

// setReady writes what the operator writes about an environment.
func (f *fixture) setReady(name string, status metav1.ConditionStatus, reason string, warm *v1alpha1.WarmStatus) {
	f.t.Helper()
	env := f.readEnvironment(name)
	before := env.DeepCopy()
	env.Status.Warm = warm
	meta.SetStatusCondition(&env.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: status, Reason: reason})
	if err := f.client.Status().Patch(f.t.Context(), env, client.MergeFrom(before)); err != nil {
		f.t.Fatal(err)
	}
}

func TestSuspendAndResume(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.policy()
	f.environment("a", true)
	f.environment("b", false)
	f.run("env", "suspend", "a", "b").expect(t, 0, "a: suspended b: suspended")
	f.run("env", "suspend", "a").expect(t, 0, "a: suspended")
	if !f.readEnvironment("a").Spec.Suspend || !f.readEnvironment("b").Spec.Suspend {
		t.Error("an environment is not suspended")
	}
	f.run("env", "list").expect(t, 0, "Unknown, suspended")
	f.run("check", "--", "ls").expect(t, 0, "Allowed: yes", "Environment: a (the namespace's default), suspended: the call would wait")
	f.run("env", "resume", "a").expect(t, 0, "a: resumed")
	f.run("env", "suspend", "b", "-o", "yaml").expect(t, 0, "kind: ExecutionEnvironment", "name: b", "suspend: true")
	f.run("env", "suspend", "b", "-o", "name").expect(t, 0, "executionenvironment.toolcall.dev/b")
	f.run("env", "suspend", "b", "-o", "toml").expect(t, 1, "unable to match a printer")
	if f.readEnvironment("a").Spec.Suspend || !f.readEnvironment("b").Spec.Suspend {
		t.Error("another environment was resumed")
	}
}

// In an incident, one name that is wrong doesn't keep the others from being suspended.
func TestSuspendGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.environment("a", false)
	f.run("env", "suspend", "none", "a").expect(t, 1, "a: suspended", `environment none not found in namespace "`+f.namespace)
	if !f.readEnvironment("a").Spec.Suspend {
		t.Error("the environment is not suspended")
	}
}

// Nor does an output that is closed, such as a pipe to head, or a template that an object doesn't fit.
func TestSuspendAndCancelGoOnAfterAnErrorOfPrinting(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.environment("a", false)
	f.environment("b", false)
	f.labelled("first", "job=a")
	f.labelled("second", "job=a")
	const template = "-o=jsonpath={.missing.field}"
	f.run("env", "suspend", "a", "b", template, "--allow-missing-template-keys=false").expect(t, 1, "missing is not found")
	if !f.readEnvironment("a").Spec.Suspend || !f.readEnvironment("b").Spec.Suspend {
		t.Error("an environment is not suspended")
	}
	f.run("cancel", "first", "second", template, "--allow-missing-template-keys=false").expect(t, 1, "missing is not found")
	if !f.call("first").Spec.Cancel || !f.call("second").Spec.Cancel {
		t.Error("a call is not cancelled")
	}
}

func TestSuspendNeedsPermission(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.environment("a", false)
	user := f.user([]string{"toolcall-user"}, "ls")
	f.run("env", "suspend", "a", "--as", user).expect(t, 1, "you need permission to patch executionenvironments", "toolcall-admin")
	if f.readEnvironment("a").Spec.Suspend {
		t.Error("the environment is suspended")
	}
	for _, line := range []string{"env suspend", "env resume", "env suspend --"} {
		f.run(strings.Fields(line)...).expect(t, 1, "specify the names of the environments")
	}
}

func TestEnvironmentsAreListed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.run("env", "list").expect(t, 0, "No environments found in namespace "+f.namespace+". Calls need one to run in.")
	f.policy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"ls", "git"}}
	})
	f.environment("main", true)
	f.environment("other", false)
	f.make(&v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "strange"},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "example.com/tools:2", PolicyRef: &v1alpha1.PolicyReference{Name: "no-such-policy"}},
	})
	f.setReady("main", metav1.ConditionTrue, "Ready", &v1alpha1.WarmStatus{Ready: 1, Desired: 2})
	f.setReady("other", metav1.ConditionFalse, "DuplicateDefault", nil)
	got := f.run("env", "list")
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	for i, want := range []string{
		"NAME IMAGE DEFAULT POLICY READY WARM ALLOWS",
		"main example.com/tools:1 yes " + f.namespace + " True 1/2 ls, git; shell; code in python",
		"other example.com/tools:1 - " + f.namespace + " False (DuplicateDefault) - ls, git; shell; code in python",
		`strange example.com/tools:2 - no-such-policy Unknown - nothing: InvalidPolicy: there is no ExecutionPolicy "no-such-policy", which ExecutionEnvironment "strange" names`,
	} {
		if i >= len(lines) || strings.Join(strings.Fields(lines[i]), " ") != want {
			t.Errorf("line %d isn't %q in\n%s", i, want, got.out)
		}
	}
	f.run("env", "list", "-A").expect(t, 0, "NAMESPACE NAME", f.namespace+" main")
	f.run("env", "list", "-o", "name").expect(t, 0, "executionenvironment.toolcall.dev/main executionenvironment.toolcall.dev/other")
	f.run("env", "list", "-o", "yaml").expect(t, 0, "kind: ExecutionEnvironmentList")
	f.run("env", "list", "-o", "toml").expect(t, 1, "unable to match a printer")
	f.run("env", "list", "--as", "nobody").expect(t, 1, "environments:", "forbidden")
	f.run("env").expect(t, 0, "Available Commands", "suspend")
}

func TestPolicyThatAppliesByDefault(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := &policyReader{client: f.client, cache: map[string]policyResult{}}
	policy, err := r.policyFor(t.Context(), &v1alpha1.ExecutionEnvironment{})
	if err != nil || policy != nil && policy.Annotations[v1alpha1.AnnotationDefaultPolicy] != "true" {
		t.Errorf("got %v, %v", policy, err)
	}
}

func TestSummariesOfWarmPools(t *testing.T) {
	t.Parallel()
	for want, status := range map[string]*v1alpha1.WarmStatus{"": nil, "0/3": {Desired: 3}, "3/3": {Ready: 3, Desired: 3}} {
		env := &v1alpha1.ExecutionEnvironment{Status: v1alpha1.ExecutionEnvironmentStatus{Warm: status}}
		if got := warm(env); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A user without permission to read policies still learns what is certain under every policy.
func TestCheckWithoutPolicies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.policy()
	f.environment("tools", true)
	user := f.user([]string{"toolcall-user"}, "ls")
	agent := f.as(user)
	check := func(args ...string) printed { return agent(append([]string{"check"}, args...)...) }
	check("--environment", "none", "--", "ls").expect(t, 125, "EnvironmentNotFound", "Allowed: no, the call would fail before it starts")
	check("--skill", "none", "--", "ls").expect(t, 125, "SkillNotFound")
	check("--tool", "teleport").expect(t, 126, "UnknownTool", "Allowed: no, the call would be denied", "Policy: "+f.namespace)
	check("--", "ls").expect(t, 125, "Allowed: unknown", "ls, which you may use", "unknown whether the call would be allowed")
	check("--", "a/b").expect(t, 125, "Allowed: unknown")
	check("--shell", "ls").expect(t, 125, "Allowed: unknown", "bash, which you may not use")
	f.environment("second", true)
	check("--", "ls").expect(t, 125, "InvalidEnvironment", `["second" "tools"]`)
}

// check shows with which variables, limits and network a call would run.
func TestCheckShowsTheContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.policy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Code = &v1alpha1.CodePolicy{Languages: []string{}, NetworkAccess: ptr.To(true)}
		p.EnvBlocklist = []string{"BLOCKED_"}
		p.Access = v1alpha1.AccessOpen
	})
	f.environment("tools", true, v1alpha1.EnvVar{Name: "A", Value: "1"}, v1alpha1.EnvVar{Name: "BLOCKED_B", Value: "2"})
	f.make(&v1alpha1.Skill{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "review"},
		Spec:       v1alpha1.SkillSpec{Env: []v1alpha1.EnvVar{{Name: "S", Value: "3"}}},
	})
	f.make(&v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "minimal"},
		Spec: v1alpha1.ExecutionEnvironmentSpec{
			Image: "i", InheritEnv: v1alpha1.InheritMinimal, WorkingDir: "/srv", AllowedPaths: []string{"/srv"}, Queues: []string{"batch", "vip"},
			PolicyRef: &v1alpha1.PolicyReference{Name: f.namespace}, Interpreters: map[string]v1alpha1.CommandPrefix{"lua": {"lua5.4", "-"}},
		},
	})
	check := func(args ...string) printed { return f.run(append([]string{"check"}, args...)...) }
	check("--skill", "review", "-e", "BLOCKED_C=x", "--", "ls", "a b").expect(t, 0,
		"Command: ls 'a b'", "A: from the default environment", "S: from the skill", "(removed): BLOCKED_B, BLOCKED_C", "Time limit: 2m0s", "Trusted: false")
	check("--environment", "minimal", "-l", "kueue.x-k8s.io/queue-name=vip", "--", "ls").expect(t, 0,
		"Directory: /srv", "Allowed paths: /srv", "Queue: vip, chosen by the call", "(inherited): HOME, USER, LOGNAME and PATH of the image", "A: from the default environment")
	check("--environment", "minimal", "--", "ls").expect(t, 0, "Queue: batch")
	check("--environment", "minimal", "--code", "lua", "-f", "-").expect(t, 0, "Command: lua5.4 - '<the code>'", "Network: none")
	check("--code", "python", "-f", "-", "--network").expect(t, 0, "Network: held by the runner: every host outside the cluster that isn't denied")
	check("--code", "cobol", "-f", "-").expect(t, 125, "InvalidEnvironment", `no interpreter for language "cobol"`)
	check("-w", "/etc", "--", "ls").expect(t, 0, "Directory: /etc")
}
