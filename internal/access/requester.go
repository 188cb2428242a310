package access

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
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

// Requesters knows whether what a call says about its creator can be believed.
type Requesters struct {
	Reader client.Reader
}

// Vouched says whether the call was stamped by admission: the policies are there, bound, enforced, and older than the
// call. Where they aren't, missing says which, and requester and trust count as unknown.
func (r *Requesters) Vouched(ctx context.Context, call *v1alpha1.ToolCall) (vouched bool, missing string, err error) {
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
		err := r.Reader.Get(ctx, types.NamespacedName{Name: part.name}, part.object)
		if apierrors.IsNotFound(err) {
			return false, part.kind + " " + part.name, nil
		}
		if err != nil {
			return false, "", fmt.Errorf("look for %s %s: %w", part.kind, part.name, err)
		}
		if isTooYoung(part.object.GetCreationTimestamp(), call.CreationTimestamp) {
			return false, part.kind + " " + part.name + " (it was created after the call)", nil
		}
		if why := weakness(part.object); why != "" {
			return false, part.kind + " " + part.name + " (" + why + ")", nil
		}
	}
	return true, "", nil
}

// weakness says why an admission policy or binding that is there doesn't hold for every call; empty when it does.
func weakness(object client.Object) string {
	switch o := object.(type) {
	case *admissionv1.MutatingAdmissionPolicy:
		if o.Spec.ParamKind != nil {
			return dependsOnParameter
		}
		return weakPolicy(o.Spec.FailurePolicy, o.Spec.MatchConstraints, len(o.Spec.MatchConditions), len(o.Spec.Mutations))
	case *admissionv1.ValidatingAdmissionPolicy:
		if o.Spec.ParamKind != nil {
			return dependsOnParameter
		}
		return weakPolicy(o.Spec.FailurePolicy, o.Spec.MatchConstraints, len(o.Spec.MatchConditions), len(o.Spec.Validations))
	case *admissionv1.MutatingAdmissionPolicyBinding:
		return weakBinding(o.Spec.PolicyName, StampPolicy, o.Spec.ParamRef, o.Spec.MatchResources)
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		if !slices.Contains(o.Spec.ValidationActions, admissionv1.Deny) {
			return "its validationActions lack Deny"
		}
		return weakBinding(o.Spec.PolicyName, CheckPolicy, o.Spec.ParamRef, o.Spec.MatchResources)
	default:
		return "it is of an unknown kind"
	}
}

// dependsOnParameter: where the parameter isn't found, nothing is stamped or checked.
const dependsOnParameter = "it depends on a parameter"

func weakPolicy(onFailure *admissionv1.FailurePolicyType, match *admissionv1.MatchResources, conditions, steps int) string {
	switch {
	case ptr.Deref(onFailure, admissionv1.Fail) != admissionv1.Fail:
		return "its failurePolicy isn't Fail"
	case conditions > 0:
		return "its matchConditions leave calls out"
	case steps == 0:
		return "it is empty"
	case match == nil || !matchesEveryCall(match):
		return "its matchConstraints leave calls out"
	default:
		return ""
	}
}

func weakBinding(policy, want string, parameter *admissionv1.ParamRef, match *admissionv1.MatchResources) string {
	switch {
	case policy != want:
		return "it binds another policy"
	case parameter != nil:
		return dependsOnParameter
	case match != nil && !isEmptySelector(match),
		match != nil && len(match.ResourceRules) > 0 && !matchesEveryCall(match):
		// Without rules, it binds all that the policy matches.
		return "its matchResources leave calls out"
	default:
		return ""
	}
}

// matchesEveryCall says that the creation of every call is matched, whatever its namespace and labels.
func matchesEveryCall(match *admissionv1.MatchResources) bool {
	return isEmptySelector(match) && slices.ContainsFunc(match.ResourceRules, func(rule admissionv1.NamedRuleWithOperations) bool {
		scope := ptr.Deref(rule.Scope, admissionv1.AllScopes)
		return len(rule.ResourceNames) == 0 &&
			(scope == admissionv1.AllScopes || scope == admissionv1.NamespacedScope) &&
			slices.Contains(rule.APIGroups, v1alpha1.GroupVersion.Group) &&
			(slices.Contains(rule.APIVersions, "*") || slices.Contains(rule.APIVersions, v1alpha1.GroupVersion.Version)) &&
			slices.Contains(rule.Resources, "toolcalls") &&
			(slices.Contains(rule.Operations, admissionv1.Create) || slices.Contains(rule.Operations, admissionv1.OperationAll))
	})
}

// isEmptySelector says that nothing is left out by name, namespace or label.
func isEmptySelector(match *admissionv1.MatchResources) bool {
	empty := func(s *metav1.LabelSelector) bool {
		return s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0
	}
	return len(match.ExcludeResourceRules) == 0 && empty(match.NamespaceSelector) && empty(match.ObjectSelector)
}

func isTooYoung(policy, call metav1.Time) bool {
	return call.Time.Before(policy.Add(admissionDelay))
}
