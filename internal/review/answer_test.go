package review

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	subresourcesv1alpha1 "toolcall.dev/operator/api/subresources/v1alpha1"
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/envresolve"
)

// What was decided is said whole; what the controller and reviews decide alike, controllers/toolcall tests.
func TestAnswers(t *testing.T) {
	t.Parallel()
	s := &decide.Snapshot{Call: &v1alpha1.ToolCall{Spec: v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: "git"}}}}
	approval := &decide.Approval{Causes: []string{"push"}, Messages: []string{"m"}, Approvers: []string{"ops"}, Minimum: 2, ExpiresSeconds: 60}
	status, err := answer(s, &decide.Decision{Approval: approval}, nil)
	want := &subresourcesv1alpha1.ReviewApproval{Causes: []string{"push"}, Messages: []string{"m"}, Approvers: []string{"ops"}, Minimum: 2, ExpiresSeconds: 60}
	if err != nil || !status.Allowed || status.Tool != "git" || !cmp.Equal(status.Approval, want) {
		t.Errorf("a call that needs approval: %+v, %v", status, err)
	}
	status, err = answer(s, nil, &decide.Undecided{Cause: errors.New("no authorizer answers")})
	if err != nil || status.Allowed || status.Denial != nil || status.Undecided != "no authorizer answers" {
		t.Errorf("an undecided call: %+v, %v", status, err)
	}
	if status, err := answer(nil, nil, errors.New("the cache is not filled")); status != nil || !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a snapshot that can't be read: %+v, %v", status, err)
	}
}

// Where the file is, only the pod knows: a call that gets one is reviewed like any other.
func TestACallThatGetsASecretInAFileIsAllowed(t *testing.T) {
	t.Parallel()
	s := &decide.Snapshot{Call: &v1alpha1.ToolCall{Spec: v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: "git"}}}}
	key := envresolve.Var{Name: "KEY_FILE", Ref: "TOOLCALL_REF_0", File: true}
	d := &decide.Decision{Plan: envresolve.Plan{Layers: []envresolve.Layer{{Source: envresolve.SourceEnvironment, Vars: []envresolve.Var{key}}}}}
	status, err := answer(s, d, nil)
	if err != nil || !status.Allowed || !slices.ContainsFunc(status.InEffect.Variables, func(v subresourcesv1alpha1.ReviewVariable) bool { return v.Name == "KEY_FILE" }) {
		t.Errorf("%+v, %v", status, err)
	}
}
