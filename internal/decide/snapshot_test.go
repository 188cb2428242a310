package decide_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

// change prepares a snapshot for one case.
type change func(*decide.Snapshot)

// snapshot is that of a shell call which may run: it names environment "env", whose policy "policy" allows shells, and
// admission vouches for its requester.
func snapshot(changes ...change) *decide.Snapshot {
	env := environment("env")
	env.Spec.PolicyRef = &v1alpha1.PolicyReference{Name: "policy"}
	s := &decide.Snapshot{
		Call: &v1alpha1.ToolCall{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "call", UID: "call-uid"},
			Spec: v1alpha1.ToolCallSpec{
				Shell:          &v1alpha1.ShellAction{Command: "make"},
				EnvironmentRef: &v1alpha1.LocalReference{Name: "env"},
				RequestedBy:    &v1alpha1.Requester{Username: "alice"},
			},
		},
		Context:   decide.Context{Named: &env},
		Policies:  decide.Policies{Named: policy("policy", open())},
		Requester: decide.Requester{Vouched: true},
	}
	for _, c := range changes {
		c(s)
	}
	return s
}

func environment(name string, env ...v1alpha1.EnvVar) v1alpha1.ExecutionEnvironment {
	return v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name + "-uid")},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "image:1", Env: env},
	}
}

// open lets everybody use shells.
func open() v1alpha1.ExecutionPolicySpec {
	return v1alpha1.ExecutionPolicySpec{Access: v1alpha1.AccessOpen, Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}}
}

func policy(name string, spec v1alpha1.ExecutionPolicySpec) *v1alpha1.ExecutionPolicy {
	return &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")}, Spec: spec}
}

// under holds the call to another policy.
func under(spec v1alpha1.ExecutionPolicySpec) change {
	return func(s *decide.Snapshot) { s.Policies.Named = policy("policy", spec) }
}

// runs gives the call another action.
func runs(action v1alpha1.ToolCallSpec) change {
	return func(s *decide.Snapshot) {
		spec := &s.Call.Spec
		spec.Structured, spec.Shell, spec.Code, spec.Tool, spec.File = action.Structured, action.Shell, action.Code, action.Tool, action.File
	}
}

// secret is a variable whose value the kubelet looks up.
func secret(name, key string) v1alpha1.EnvVar {
	return v1alpha1.EnvVar{Name: name, ValueFrom: &v1alpha1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Key: key,
	}}}
}

// mustDecide is a decision that there has to be.
func mustDecide(t *testing.T, s *decide.Snapshot) *decide.Decision {
	t.Helper()
	d, err := decide.Decide(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// refusalOf is the refusal that a snapshot leads to.
func refusalOf(t *testing.T, s *decide.Snapshot) *decide.Refusal {
	t.Helper()
	d, err := decide.Decide(s)
	var refusal *decide.Refusal
	if !errors.As(err, &refusal) || d != nil {
		t.Fatalf("got %+v, %v; want a refusal and no decision", d, err)
	}
	return refusal
}

func program(binary string, args ...string) v1alpha1.ToolCallSpec {
	return v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: binary, Args: args}}
}

func shell(command string) v1alpha1.ToolCallSpec {
	return v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: command}}
}

func code(language, source string) v1alpha1.ToolCallSpec {
	return v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: language, Source: source}}
}

func tool(name, arguments string) v1alpha1.ToolCallSpec {
	return v1alpha1.ToolCallSpec{Tool: &v1alpha1.ToolAction{Name: name, Arguments: &runtime.RawExtension{Raw: []byte(arguments)}}}
}

func languages(names ...string) v1alpha1.ExecutionPolicySpec {
	return v1alpha1.ExecutionPolicySpec{Access: v1alpha1.AccessOpen, Code: &v1alpha1.CodePolicy{Languages: names}}
}

func wants(seconds int32) change {
	return func(s *decide.Snapshot) { s.Call.Spec.TimeoutSeconds = &seconds }
}

func allowed(s *decide.Snapshot) { s.Access.Allowed = true }

func unvouched(missing string) change {
	return func(s *decide.Snapshot) { s.Requester = decide.Requester{Missing: missing} }
}
