package controllers

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// Names of the admission policies in config/admission, each with a binding of the same name.
const (
	// StampPolicy writes the request's user into spec.requestedBy.
	StampPolicy = "toolcall-requested-by"
	// CheckPolicy compares spec.requestedBy with the request, and refuses trusted without the right to it.
	CheckPolicy = "toolcall-identity"
)

// admissionDelay is how long after its creation a policy may not be in force yet: the API server learns of
// policies through a watch.
const admissionDelay = 2 * time.Second

// Callers knows whether what a call says about its creator can be believed.
type Callers struct {
	Reader client.Reader
}

// Known says whether the call was stamped by admission: the policies are there, bound, and older than the
// call. Where they aren't, missing says which, and identity and trusted count as unknown.
func (c *Callers) Known(ctx context.Context, call *v1alpha1.ToolCall) (known bool, missing string, err error) {
	for _, part := range []struct {
		kind   string
		name   string
		object client.Object
	}{
		{"MutatingAdmissionPolicy", StampPolicy, &admissionv1.MutatingAdmissionPolicy{}},
		{"MutatingAdmissionPolicyBinding", StampPolicy, &admissionv1.MutatingAdmissionPolicyBinding{}},
		{"ValidatingAdmissionPolicy", CheckPolicy, &admissionv1.ValidatingAdmissionPolicy{}},
		{"ValidatingAdmissionPolicyBinding", CheckPolicy, &admissionv1.ValidatingAdmissionPolicyBinding{}},
	} {
		err := c.Reader.Get(ctx, types.NamespacedName{Name: part.name}, part.object)
		if apierrors.IsNotFound(err) {
			return false, part.kind + " " + part.name, nil
		}
		if err != nil {
			return false, "", fmt.Errorf("look for %s %s: %w", part.kind, part.name, err)
		}
		if tooYoung(part.object.GetCreationTimestamp(), call.CreationTimestamp) {
			return false, part.kind + " " + part.name + " (it was created after the call)", nil
		}
	}
	return true, "", nil
}

func tooYoung(policy, call metav1.Time) bool {
	return call.Time.Before(policy.Add(admissionDelay))
}
