package jobspec_test

import (
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/spec"
)

// sealer is the operator's, and another one's.
var sealer, foreignSealer = newIdentity(), newIdentity()

func newIdentity() func(*testing.T) *dispatch.Identity {
	once := sync.OnceValues(func() (*dispatch.Identity, error) { return dispatch.NewIdentity(time.Now()) })
	return func(t *testing.T) *dispatch.Identity {
		t.Helper()
		identity, err := once()
		if err != nil {
			t.Fatal(err)
		}
		return identity
	}
}

func call(name string) *v1alpha1.ToolCall {
	return &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec: v1alpha1.ToolCallSpec{
			Shell: &v1alpha1.ShellAction{Command: "echo secret-command"},
			Env:   []v1alpha1.CallEnvVar{{Name: "MINE", Value: "secret-value"}}, Stdin: "secret-stdin",
		},
	}
}

// reference is a variable that the kubelet resolves.
func reference() corev1.EnvVar {
	return corev1.EnvVar{Name: "TOOLCALL_RUNNER_REF_1", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Key: "key",
	}}}
}

type change func(*jobspec.Input)

func input(t *testing.T, changes ...change) jobspec.Input {
	t.Helper()
	in := jobspec.Input{
		Call: call("c"),
		Decision: &decide.Decision{
			Environment: "env", ArgvPrefix: []string{"bash", "-c"}, Bounds: spec.Bounds{TimeoutMilliseconds: 10500, MaxBytesPerStream: 100}, StartTimeoutSeconds: 60,
			Plan: envresolve.Plan{Layers: []envresolve.Layer{
				{Source: envresolve.SourceDefault, Vars: []envresolve.Var{{Name: "D", Value: "secret-literal"}}},
				{Source: envresolve.SourceCall, Vars: []envresolve.Var{{Name: "MINE", Value: "secret-value"}}},
			}},
			In:   &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "env", UID: "env-uid"}, Spec: v1alpha1.ExecutionEnvironmentSpec{Image: "img:1"}},
			Refs: []corev1.EnvVar{reference()},
		},
		Runtime: jobspec.Runtime{RunnerImage: "runner:1", Endpoints: []string{"a:1", "b:2"}, CA: "ca"},
		Sealer:  sealer(t),
	}
	for _, c := range changes {
		c(&in)
	}
	return in
}

func build(t *testing.T, changes ...change) *batchv1.Job {
	t.Helper()
	job, err := jobspec.Build(input(t, changes...))
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// buildWarm makes the Job of a waiting pod.
func buildWarm(t *testing.T, changes ...func(*jobspec.WarmInput)) *batchv1.Job {
	t.Helper()
	in := jobspec.WarmInput{
		Environment: &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "env", UID: "env-uid"}, Spec: v1alpha1.ExecutionEnvironmentSpec{Image: "img:1"}},
		Refs:        []corev1.EnvVar{reference()},
		Runtime:     jobspec.Runtime{RunnerImage: "runner:1", Endpoints: []string{"a:1", "b:2"}, CA: "ca"},
		Name:        "tc-warm-env-1",
	}
	for _, c := range changes {
		c(&in)
	}
	return jobspec.BuildWarm(in, "hash", sealer(t))
}

// slimmed is a Job as the operator reads it.
func slimmed(job *batchv1.Job) *batchv1.Job {
	read := job.DeepCopy()
	jobspec.Slim(read)
	return read
}
