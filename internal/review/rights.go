package review

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"toolcall.dev/operator/api/v1alpha1"
)

var (
	calls        = v1alpha1.GroupVersion.WithResource("toolcalls").GroupResource()
	environments = v1alpha1.GroupVersion.WithResource("executionenvironments").GroupResource()
	policies     = v1alpha1.GroupVersion.WithResource("executionpolicies").GroupResource()
)

// maxAttributes is how many groups and extra values another user may have: each costs a question.
const maxAttributes = 128

// subject is whom the call is reviewed for: the user of the request, or another one whom that user may impersonate, as the API server's
// own impersonation has it.
func (r *Reviewer) subject(ctx context.Context, who user.Info, other *v1alpha1.Requester) (user.Info, error) {
	if other == nil {
		return who, nil
	}
	attributes := len(other.Groups)
	for _, values := range other.Extra {
		attributes += len(values)
	}
	switch {
	case other.Username == "":
		return nil, apierrors.NewBadRequest("spec.user.username is missing: it names the user that the call is reviewed for")
	case attributes > maxAttributes:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("spec.user has %d groups and extra values: at most %d can be impersonated", attributes, maxAttributes))
	}
	for _, need := range impersonations(other) {
		need.verb = "impersonate"
		if err := r.check(ctx, who, need, "a review for another user needs the right to impersonate the user, each group, the uid and each extra value"); err != nil {
			return nil, err
		}
	}
	subject := &user.DefaultInfo{Name: other.Username, UID: other.UID, Groups: slices.Clone(other.Groups), Extra: map[string][]string{}}
	for key, values := range other.Extra {
		subject.Extra[key] = values
	}
	if namespace, _, err := serviceaccount.SplitUsername(other.Username); err == nil && len(other.Groups) == 0 {
		subject.Groups = serviceaccount.MakeGroupNames(namespace)
	}
	authentic := map[bool]string{true: user.AllUnauthenticated, false: user.AllAuthenticated}[other.Username == user.Anonymous]
	if !slices.Contains(subject.Groups, user.AllAuthenticated) && !slices.Contains(subject.Groups, user.AllUnauthenticated) {
		subject.Groups = append(subject.Groups, authentic)
	}
	return subject, nil
}

// impersonations are the objects that whoever acts for the user has to be allowed to impersonate.
func impersonations(other *v1alpha1.Requester) []right {
	needs := []right{{resource: schema.GroupResource{Resource: "users"}, name: other.Username}}
	if namespace, name, err := serviceaccount.SplitUsername(other.Username); err == nil {
		needs = []right{{resource: schema.GroupResource{Resource: "serviceaccounts"}, namespace: namespace, name: name}}
	}
	for _, group := range other.Groups {
		needs = append(needs, right{resource: schema.GroupResource{Resource: "groups"}, name: group})
	}
	if other.UID != "" {
		needs = append(needs, right{resource: authenticationv1.Resource("uids"), name: other.UID})
	}
	for key, values := range other.Extra {
		for _, value := range values {
			needs = append(needs, right{resource: authenticationv1.Resource("userextras"), subresource: key, name: value})
		}
	}
	return needs
}

// checkCreate says why the user could not create the call at all, as the API server does.
func (r *Reviewer) checkCreate(ctx context.Context, subject user.Info, namespace string, call *v1alpha1.ToolCallSpec) error {
	if err := r.check(ctx, subject, right{verb: "create", resource: calls, namespace: namespace}, "a review needs the right to create the call"); err != nil {
		return err
	}
	if !call.Trusted {
		return nil
	}
	return r.CheckTrust(ctx, subject, namespace,
		`spec.trusted is for those who may "trust" executionenvironments in this namespace; leave it out, or ask for that right`)
}

// CheckTrust says why the user may not make a call of the namespace trusted, as admission does; why says what the right is needed for.
func (r *Reviewer) CheckTrust(ctx context.Context, who user.Info, namespace, why string) error {
	return r.check(ctx, who, right{verb: "trust", resource: environments, namespace: namespace}, why)
}

// CheckGet says why the user may not read a call, and so not its output either.
func (r *Reviewer) CheckGet(ctx context.Context, who user.Info, call types.NamespacedName) error {
	need := right{verb: "get", resource: calls, namespace: call.Namespace, name: call.Name}
	return r.check(ctx, who, need, "reading a call's output needs the right to get the call")
}

// right is a verb on an object, or on all of a kind.
type right struct {
	verb                         string
	resource                     schema.GroupResource
	namespace, name, subresource string
}

// check says why a user doesn't have a right; why says what it is needed for.
func (r *Reviewer) check(ctx context.Context, who user.Info, need right, why string) error {
	version := v1alpha1.GroupVersion.Version
	if need.resource.Group != v1alpha1.GroupVersion.Group {
		version = "v1"
	}
	decision, reason, err := r.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: who, Verb: need.verb, Namespace: need.namespace, Name: need.name, ResourceRequest: true,
		APIGroup: need.resource.Group, APIVersion: version, Resource: need.resource.Resource, Subresource: need.subresource,
	})
	switch {
	case err != nil:
		return unavailable("whether %q may %s %s could not be checked: %s", who.GetName(), need.verb, need.resource.Resource, err.Error())
	case decision == authorizer.DecisionAllow:
		return nil
	default:
		if reason != "" {
			reason = ": " + reason
		}
		return apierrors.NewForbidden(need.resource, need.name, fmt.Errorf("user %q cannot %s %s: %s%s", who.GetName(), need.verb, need.resource.Resource, why, reason))
	}
}

// retryAfterSeconds is when a client asks again for what isn't there for the moment.
const retryAfterSeconds = 1

func unavailable(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Details: &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}, Message: fmt.Sprintf(format, args...),
	}}
}
