package api_test

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

func newCall(namespace, name string) *v1alpha1.ToolCall {
	return &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: "ls"}},
	}
}

func newSession(namespace, name string) *v1alpha1.ToolSession {
	return &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func newEnvironment(namespace, name string) *v1alpha1.ExecutionEnvironment {
	return &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "example.com/tools:1"},
	}
}

// eventually tries until there is no error: admission policies that a test installs take a moment to be in force.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
