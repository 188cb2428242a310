// Package access finds out who created a call or a session, and whether that user may use the call's tool and session.
//
// Who: the API server's admission policies stamp the user into the object; Requesters says whether they were in force.
// May: the API server's authorizer answers a SubjectAccessReview; Reviews asks it and remembers a yes for ten seconds.
// Both fail closed: what isn't known is a no, and what isn't answered is an error.
package access

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/clock"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

// Bounds of remembered answers. A yes is remembered: a right that is taken away holds for at most answerTTL longer.
// A no isn't: a right that was just given counts at once.
const (
	answerTTL  = 10 * time.Second
	answerSize = 4096
)

// reviewTimeout bounds one question, as each request of a pass is bounded: an authorizer that doesn't answer keeps a
// worker for no longer.
const reviewTimeout = 15 * time.Second

// Reviews asks the API server's authorizer whether a user may use a tool or a session.
type Reviews struct {
	reviews authorizationv1client.SubjectAccessReviewInterface
	answers *cache.LRUExpireCache
}

// NewReviews makes one that remembers nothing yet.
func NewReviews(reviews authorizationv1client.SubjectAccessReviewInterface, c clock.PassiveClock) *Reviews {
	return &Reviews{reviews: reviews, answers: cache.NewLRUExpireCacheWithClock(answerSize, c)}
}

// MayUse says whether the user has the verb "use" on tools of that name in the namespace. A yes is
// remembered for ten seconds.
func (a *Reviews) MayUse(ctx context.Context, who *v1alpha1.Requester, namespace, tool string) (bool, error) {
	return a.ask(ctx, who, &authorizationv1.ResourceAttributes{Namespace: namespace, Resource: "tools", Name: tool})
}

// MayUseSession says the same of the ToolSession of that name.
func (a *Reviews) MayUseSession(ctx context.Context, who *v1alpha1.Requester, namespace, session string) (bool, error) {
	return a.ask(ctx, who, &authorizationv1.ResourceAttributes{Namespace: namespace, Resource: "toolsessions", Name: session})
}

// ask asks about the verb "use" on an object of the project.
func (a *Reviews) ask(ctx context.Context, who *v1alpha1.Requester, what *authorizationv1.ResourceAttributes) (bool, error) {
	what.Verb, what.Group, what.Version = "use", v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version
	spec := authorizationv1.SubjectAccessReviewSpec{
		User:               who.Username,
		UID:                who.UID,
		Groups:             who.Groups,
		Extra:              extraOf(who),
		ResourceAttributes: what,
	}
	key, err := json.Marshal(spec)
	if err != nil {
		return false, fmt.Errorf("encode the access review: %w", err)
	}
	if _, yes := a.answers.Get(string(key)); yes {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := a.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether %q may use %s %q: %w", who.Username, strings.TrimSuffix(what.Resource, "s"), what.Name, err)
	}
	may, err := decide.ReviewAnswer(&review.Status)
	if err != nil {
		return false, fmt.Errorf("ask whether %q may use %s %q: %w", who.Username, strings.TrimSuffix(what.Resource, "s"), what.Name, err)
	}
	if may {
		a.answers.Add(string(key), true, answerTTL)
	}
	return may, nil
}

// extraOf translates what an authenticator says besides name and groups.
func extraOf(who *v1alpha1.Requester) map[string]authorizationv1.ExtraValue {
	if len(who.Extra) == 0 {
		return nil
	}
	extra := make(map[string]authorizationv1.ExtraValue, len(who.Extra))
	for key, values := range who.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	return extra
}

// RequesterOf is a user in the words of the API.
func RequesterOf(who user.Info) *v1alpha1.Requester {
	r := &v1alpha1.Requester{Username: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
	for key, values := range who.GetExtra() {
		if r.Extra == nil {
			r.Extra = map[string]v1alpha1.ExtraValue{}
		}
		r.Extra[key] = values
	}
	return r
}
