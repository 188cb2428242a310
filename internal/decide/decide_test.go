package decide_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/guards"
)

func TestArgvPrefix(t *testing.T) {
	t.Parallel()
	env := &v1alpha1.ExecutionEnvironmentSpec{
		Shell: []string{"zsh", "-c"}, Interpreters: map[string]v1alpha1.CommandPrefix{"python": {"pypy3"}, "lua": {"lua5"}},
	}
	plain := &v1alpha1.ExecutionEnvironmentSpec{}
	cases := map[string]struct {
		env    *v1alpha1.ExecutionEnvironmentSpec
		action guards.Action
		want   []string
	}{
		"a program":                        {env, guards.Action{Type: v1alpha1.ActionStructured, Binary: "ls"}, nil},
		"a shell line":                     {plain, guards.Action{Type: v1alpha1.ActionShell}, []string{"bash", "-c"}},
		"a shell line in its own shell":    {env, guards.Action{Type: v1alpha1.ActionShell}, []string{"zsh", "-c"}},
		"a built-in interpreter":           {plain, guards.Action{Type: v1alpha1.ActionCode, Language: "python"}, []string{"python3"}},
		"an interpreter that was replaced": {env, guards.Action{Type: v1alpha1.ActionCode, Language: "python"}, []string{"pypy3"}},
		"an interpreter of its own":        {env, guards.Action{Type: v1alpha1.ActionCode, Language: "lua"}, []string{"lua5"}},
	}
	for name, c := range cases {
		got, err := decide.ArgvPrefix(c.env, &c.action)
		if err != nil || !cmp.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	_, err := decide.ArgvPrefix(plain, &guards.Action{Type: v1alpha1.ActionCode, Language: "lua"})
	var refusal *decide.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != v1alpha1.ReasonInvalidEnvironment || refusal.Denied || !strings.Contains(refusal.Message, `spec.interpreters["lua"]`) {
		t.Errorf("an unknown language: %v", err)
	}
}

func environment(name string) v1alpha1.ExecutionEnvironment {
	return v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestDefaultsAreOneOrNone(t *testing.T) {
	t.Parallel()
	none, err := decide.DefaultEnvironment(nil)
	if none != nil || err != nil {
		t.Errorf("of none: %v, %v", none, err)
	}
	one, err := decide.DefaultEnvironment([]v1alpha1.ExecutionEnvironment{environment("a")})
	if err != nil || one.Name != "a" {
		t.Errorf("of one: %v, %v", one, err)
	}
	var refusal *decide.Refusal
	_, err = decide.DefaultEnvironment([]v1alpha1.ExecutionEnvironment{environment("b"), environment("a")})
	if !errors.As(err, &refusal) || refusal.Reason != v1alpha1.ReasonInvalidEnvironment || !strings.Contains(refusal.Message, `["a" "b"]`) {
		t.Errorf("of two: %v", err)
	}
	if p, err := decide.DefaultPolicy(make([]v1alpha1.ExecutionPolicy, 2)); p != nil || !errors.Is(err, decide.ErrPolicy) {
		t.Errorf("of two policies: %v, %v", p, err)
	}
}

// A reference goes into the pod only if its variable can reach the process.
func TestPlanTakesEachVariableFromItsMostSpecificSource(t *testing.T) {
	t.Parallel()
	secret := &v1alpha1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}
	named, fallback := environment("named"), environment("fallback")
	named.Spec.Env = []v1alpha1.EnvVar{{Name: "A", Value: "named"}, {Name: "S", ValueFrom: secret}, {Name: "AWS_KEY", ValueFrom: secret}}
	fallback.Spec.Env = []v1alpha1.EnvVar{{Name: "A", Value: "fallback"}, {Name: "D", Value: "fallback"}}
	policy, err := guards.Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	call := &v1alpha1.ToolCall{Spec: v1alpha1.ToolCallSpec{Env: []v1alpha1.CallEnvVar{{Name: "S", Value: "call"}}}}
	where := decide.Where{Named: &named, Default: &fallback}
	plan, refs := where.Plan(call, policy)
	if len(refs) != 0 || plan.Trusted || plan.EnvironmentName != "named" {
		t.Errorf("references %v, plan %+v", refs, plan)
	}
	call.Spec.Env, where.Trusted = nil, true
	if plan, refs = where.Plan(call, policy); len(refs) != 1 || !plan.Trusted {
		t.Errorf("trusted: references %v, plan %+v", refs, plan)
	}
}
