package decide_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

func kernelPolicy(change func(*v1alpha1.ExecutionPolicySpec)) *v1alpha1.ExecutionPolicy {
	p := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "agents"}, Spec: v1alpha1.ExecutionPolicySpec{
		Access:   v1alpha1.AccessOpen,
		Shell:    &v1alpha1.ShellPolicy{Enabled: ptr.To(true)},
		Binaries: &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Allowed: []string{"ls", "/opt/tools/"}},
	}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func decideUnder(t *testing.T, policy *v1alpha1.ExecutionPolicy, spec v1alpha1.ToolCallSpec) *decide.Decision {
	t.Helper()
	env := &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "env"},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "image:1", PolicyRef: &v1alpha1.PolicyReference{Name: policy.Name}},
	}
	spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "env"}
	d, err := decide.Decide(&decide.Snapshot{
		Call:     &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u", Generation: 1}, Spec: spec},
		Context:  decide.Context{Named: env},
		Policies: decide.Policies{Named: policy},
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestWhatTheKernelHoldsACallTo(t *testing.T) {
	t.Parallel()
	structured := v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: "ls"}}
	shell := v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "ls"}}
	code := v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: "python", Source: "1"}}
	listed := func(own string) *rules.Rules {
		return &rules.Rules{Policy: "agents", Programs: &rules.Programs{Allowed: []string{"ls", "/opt/tools/"}, Own: own}}
	}
	for name, tc := range map[string]struct {
		spec   v1alpha1.ToolCallSpec
		change func(*v1alpha1.ExecutionPolicySpec)
		want   *rules.Rules
	}{
		"a program":        {structured, nil, listed("")},
		"a shell line":     {shell, nil, listed("bash")},
		"code":             {code, nil, listed("python3")},
		"with names alone": {structured, func(p *v1alpha1.ExecutionPolicySpec) { p.Binaries.Enforcement = v1alpha1.EnforcementName }, nil},
		"multi-call programs are denied": {structured, func(p *v1alpha1.ExecutionPolicySpec) {
			p.Binaries.MultiCall = v1alpha1.MultiCallDeny
		}, listed("")},
		"a permissive list": {structured, func(p *v1alpha1.ExecutionPolicySpec) {
			p.Binaries.Mode = v1alpha1.BinariesPermissive
		}, nil},
		"a permissive list for scripts": {code, func(p *v1alpha1.ExecutionPolicySpec) {
			p.Binaries.Mode, p.Shell.Commands = v1alpha1.BinariesPermissive, v1alpha1.ShellAllowlisted
		}, listed("python3")},
		"no list, and paths": {structured, func(p *v1alpha1.ExecutionPolicySpec) {
			p.Binaries, p.Files = nil, &v1alpha1.FilesPolicy{WritePaths: []string{}}
		}, &rules.Rules{Policy: "agents", WritePaths: []string{}}},
		"all of it": {structured, func(p *v1alpha1.ExecutionPolicySpec) {
			p.Binaries.Helpers, p.Binaries.AllowWritable = map[string]v1alpha1.HelperList{"ls": {"cat"}}, ptr.To(true)
			p.Binaries.MultiCall = v1alpha1.MultiCallAllow
			p.Files = &v1alpha1.FilesPolicy{ReadPaths: []string{"/r"}, WritePaths: []string{"/w"}}
		}, &rules.Rules{
			Policy: "agents", ReadPaths: []string{"/r"}, WritePaths: []string{"/w"},
			Programs: &rules.Programs{
				Allowed: []string{"ls", "/opt/tools/"}, Helpers: map[string][]string{"ls": {"cat"}}, AllowWritable: true, AllowMultiCall: true,
			},
		}},
	} {
		d := decideUnder(t, kernelPolicy(tc.change), tc.spec)
		if diff := cmp.Diff(tc.want, d.Rules); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		raw, err := d.Encode()
		if err != nil {
			t.Fatal(err)
		}
		stored, err := decide.Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		a, err := stored.Assignment(&v1alpha1.ToolCall{Spec: tc.spec})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, a.Rules); diff != "" {
			t.Errorf("%s, handed over: %s", name, diff)
		}
	}
}

// A policy that only compares names with its list is said to be weak, also when the call has been handed over.
func TestADecisionSaysThatItsListIsWeak(t *testing.T) {
	t.Parallel()
	for enforcement, weak := range map[v1alpha1.Enforcement]bool{v1alpha1.EnforcementName: true, v1alpha1.EnforcementKernel: false} {
		d := decideUnder(t, kernelPolicy(func(p *v1alpha1.ExecutionPolicySpec) { p.Binaries.Enforcement = enforcement }), v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: "ls"}})
		if d.WeakPrograms != weak || d.HandedOver(time.Now()).WeakPrograms != weak || (d.Rules == nil) != weak {
			t.Errorf("%s: %t, with rules %+v", enforcement, d.WeakPrograms, d.Rules)
		}
	}
}
