package access

import (
	"context"
	"fmt"
	"reflect"
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
	// CheckPolicy compares spec.requestedBy with the request, and refuses trusted without the right to it.
	CheckPolicy = "toolcall-identity"
	// SessionCheckPolicy does the same for sessions.
	SessionCheckPolicy = "toolcall-session-identity"
	// SessionUpdatePolicy refuses another spec.requestedBy later on: unlike a call's, a session's spec may change.
	SessionUpdatePolicy = "toolcall-session-update"
	// ApprovalCheckPolicy compares spec.approver of a decision about a call with the request, and asks for the verb "approve".
	ApprovalCheckPolicy = "toolcall-approval-identity"
)

// guard is a ValidatingAdmissionPolicy, with a binding of its name, that has to be in force before an object is believed.
//
// No MutatingAdmissionPolicy is among them: toolcall-requested-by and toolcall-session-requested-by fill spec.requestedBy in,
// and clusters before Kubernetes 1.36 lack them. Whoever fills it in, what isn't the user of the request is refused.
type guard struct {
	name      string
	resource  string
	operation admissionv1.OperationType
}

var (
	callGuards = []guard{
		{name: CheckPolicy, resource: "toolcalls", operation: admissionv1.Create},
	}
	sessionGuards = []guard{
		{name: SessionCheckPolicy, resource: "toolsessions", operation: admissionv1.Create},
		{name: SessionUpdatePolicy, resource: "toolsessions", operation: admissionv1.Update},
	}
	approvalGuards = []guard{
		{name: ApprovalCheckPolicy, resource: "toolcallapprovals", operation: admissionv1.Create},
	}
)

// Vouches says that an admission policy, or a binding, of this name is one of those that vouch for requesters.
func Vouches(name string) bool {
	return slices.ContainsFunc(slices.Concat(callGuards, sessionGuards, approvalGuards), func(g guard) bool { return g.name == name })
}

// admissionDelay is how long after its creation a policy may not be in force yet: the API server learns of
// policies through a watch, and compiles them once a second. Creation times are whole seconds, so that the true difference
// can be a second less.
const admissionDelay = 3 * time.Second

// Requesters knows whether what a call or a session says about its creator can be believed.
type Requesters struct {
	Reader client.Reader
}

// Vouched says whether admission checked who created the call: the policy is there, bound, enforced, and older than the
// call. Where it isn't, missing says why, and requester and trust count as unknown.
func (r *Requesters) Vouched(ctx context.Context, call *v1alpha1.ToolCall) (vouched bool, missing string, err error) {
	return r.vouched(ctx, callGuards, "call", call)
}

// SessionVouched says the same of a session, whose requester can't have been changed since either.
func (r *Requesters) SessionVouched(ctx context.Context, session *v1alpha1.ToolSession) (vouched bool, missing string, err error) {
	return r.vouched(ctx, sessionGuards, "session", session)
}

// ApprovalVouched says the same of a decision about a call: that its approver made it, and may.
func (r *Requesters) ApprovalVouched(ctx context.Context, decision *v1alpha1.ToolCallApproval) (vouched bool, missing string, err error) {
	return r.vouched(ctx, approvalGuards, "decision", decision)
}

func (r *Requesters) vouched(ctx context.Context, guards []guard, noun string, object client.Object) (vouched bool, missing string, err error) {
	for i := range guards {
		for _, part := range []client.Object{&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}} {
			what := reflect.TypeOf(part).Elem().Name() + " " + guards[i].name
			err := r.Reader.Get(ctx, types.NamespacedName{Name: guards[i].name}, part)
			if apierrors.IsNotFound(err) {
				return false, what, nil
			}
			if err != nil {
				return false, "", fmt.Errorf("look for %s: %w", what, err)
			}
			if isTooYoung(part.GetCreationTimestamp(), object.GetCreationTimestamp()) {
				return false, what + " (it was created after the " + noun + ")", nil
			}
			if why := guards[i].weakness(part); why != "" {
				return false, what + " (" + why + ")", nil
			}
		}
	}
	return true, "", nil
}

// weakness says why an admission policy or binding that is there doesn't hold for every call or session; empty when it
// does.
func (g *guard) weakness(object client.Object) string {
	switch o := object.(type) {
	case *admissionv1.ValidatingAdmissionPolicy:
		return g.weakPolicy(&o.Spec)
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		return g.weakBinding(&o.Spec)
	default:
		return "it is of an unknown kind"
	}
}

// Weakness says why one of the project's ValidatingAdmissionPolicies, or its binding, doesn't hold everything to its rules; empty when it
// does. Of a policy that doesn't vouch for requesters, it doesn't judge what is matched.
func Weakness(object client.Object) string {
	for _, g := range slices.Concat(callGuards, sessionGuards, approvalGuards) {
		if g.name == object.GetName() {
			return g.weakness(object)
		}
	}
	if policy, ok := object.(*admissionv1.ValidatingAdmissionPolicy); ok {
		if ptr.Deref(policy.Spec.FailurePolicy, admissionv1.Fail) != admissionv1.Fail {
			return ignoresFailures
		}
		return ""
	}
	other := guard{name: object.GetName(), resource: "objects"}
	return other.weakness(object)
}

const (
	// dependsOnParameter: where the parameter isn't found, nothing is checked.
	dependsOnParameter = "it depends on a parameter"
	ignoresFailures    = "its failurePolicy isn't Fail"
)

func (g *guard) weakPolicy(p *admissionv1.ValidatingAdmissionPolicySpec) string {
	switch {
	case p.ParamKind != nil:
		return dependsOnParameter
	case ptr.Deref(p.FailurePolicy, admissionv1.Fail) != admissionv1.Fail:
		return ignoresFailures
	case len(p.MatchConditions) > 0:
		return "its matchConditions leave " + g.resource + " out"
	case len(p.Validations) == 0:
		return "it is empty"
	case p.MatchConstraints == nil || !g.matchesEvery(p.MatchConstraints):
		return "its matchConstraints leave " + g.resource + " out"
	default:
		return ""
	}
}

func (g *guard) weakBinding(b *admissionv1.ValidatingAdmissionPolicyBindingSpec) string {
	match := b.MatchResources
	switch {
	case !slices.Contains(b.ValidationActions, admissionv1.Deny):
		return "its validationActions lack Deny"
	case b.PolicyName != g.name:
		return "it binds another policy"
	case b.ParamRef != nil:
		return dependsOnParameter
	case match != nil && !isEmptySelector(match),
		match != nil && len(match.ResourceRules) > 0 && !g.matchesEvery(match):
		// Without rules, it binds all that the policy matches.
		return "its matchResources leave " + g.resource + " out"
	default:
		return ""
	}
}

// matchesEvery says that the operation is matched on every object of the resource, whatever its namespace and labels.
func (g *guard) matchesEvery(match *admissionv1.MatchResources) bool {
	return isEmptySelector(match) && slices.ContainsFunc(match.ResourceRules, func(rule admissionv1.NamedRuleWithOperations) bool {
		scope := ptr.Deref(rule.Scope, admissionv1.AllScopes)
		return len(rule.ResourceNames) == 0 &&
			(scope == admissionv1.AllScopes || scope == admissionv1.NamespacedScope) &&
			slices.Contains(rule.APIGroups, v1alpha1.GroupVersion.Group) &&
			(slices.Contains(rule.APIVersions, "*") || slices.Contains(rule.APIVersions, v1alpha1.GroupVersion.Version)) &&
			slices.Contains(rule.Resources, g.resource) &&
			(slices.Contains(rule.Operations, g.operation) || slices.Contains(rule.Operations, admissionv1.OperationAll))
	})
}

// isEmptySelector says that nothing is left out by name, namespace or label.
func isEmptySelector(match *admissionv1.MatchResources) bool {
	empty := func(s *metav1.LabelSelector) bool {
		return s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0
	}
	return len(match.ExcludeResourceRules) == 0 && empty(match.NamespaceSelector) && empty(match.ObjectSelector)
}

func isTooYoung(policy, object metav1.Time) bool {
	return object.Time.Before(policy.Add(admissionDelay))
}
