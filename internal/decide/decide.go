// Package decide holds what follows from a call and the objects that it names: where it runs, with which variables,
// under which policy, with which command line, and why it can't.
//
// Input are objects that somebody else has read; the answers are plans, or a Refusal that ends the call. It is used
// by the operator, and by kubectl toolcall check to say beforehand what the operator would decide.
//
// Invariants: the same input gives the same answer; a name that doesn't exist never falls back to something else.
// The package must not talk to a cluster: whether the caller may use a tool is asked in internal/guards, through a
// function that is passed in.
package decide

import (
	"errors"
	"fmt"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/guards"
)

// Refusal ends a call before anything was made for it: the user's to mend, so nothing is retried.
type Refusal struct {
	Reason, Message string
	// Denied says that a guard refused the call; else it fails.
	Denied bool
}

func (e *Refusal) Error() string { return e.Reason + ": " + e.Message }

// Refuse makes a Refusal that fails the call.
func Refuse(reason, format string, args ...any) error {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Denied makes a Refusal of a guard's denial.
func Denied(d *guards.Denial) error {
	return &Refusal{Reason: d.Reason, Message: d.Message, Denied: true}
}

// ErrPolicy marks a policy that can't be used: the user's to mend, so nothing is retried.
var ErrPolicy = errors.New("policy can't be used")

// NoPolicy says that an environment names a policy which isn't there.
func NoPolicy(name string) error {
	return fmt.Errorf("%w: there is no ExecutionPolicy %q", ErrPolicy, name)
}

// NotCompiled refuses a call whose policy has a field that can't be used.
func NotCompiled(err error) error {
	return Refuse(v1alpha1.ReasonInvalidPolicy, "the policy does not compile: %s", err.Error())
}

// DefaultPolicy gives the cluster's default of those that are marked as it; nil, for the built-in defaults, when
// none is.
func DefaultPolicy(marked []v1alpha1.ExecutionPolicy) (*v1alpha1.ExecutionPolicy, error) {
	switch len(marked) {
	case 0:
		return nil, nil
	case 1:
		return &marked[0], nil
	default:
		return nil, fmt.Errorf("%w: %d ExecutionPolicies are annotated with %s, at most one may be", ErrPolicy, len(marked), v1alpha1.AnnotationDefaultPolicy)
	}
}
