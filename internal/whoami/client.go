// Package whoami has clients say who they are where nobody does that for them.
//
// A cluster without the MutatingAdmissionPolicy toolcall-requested-by refuses a call or a session whose spec.requestedBy, or a
// ToolCallApproval whose spec.approver, isn't the user of the request. A client learns that from the refusal: it asks the API server who it is, and creates the object
// again. Nothing is asked where admission fills the field in. What a client says is never believed: admission compares it.
package whoami

import (
	"context"
	"fmt"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// refusal is in the messages with which admission refuses another requester or approver, or none: config/admission/identity.yaml.
const refusal = "must be the user of the request"

// Reviews ask the API server who the user of the request is.
type Reviews interface {
	Create(ctx context.Context, review *authenticationv1.SelfSubjectReview, opts metav1.CreateOptions) (*authenticationv1.SelfSubjectReview, error)
}

// Client fills spec.requestedBy of the calls and sessions that it creates in, and spec.approver of approvals, once the cluster has asked for it. All of its
// requests are one user's.
type Client struct {
	client.WithWatch
	reviews Reviews

	mu   sync.Mutex
	user *v1alpha1.Requester
}

// NewClient returns a client whose requests, and whose reviews, have the same credentials.
func NewClient(objects client.WithWatch, reviews Reviews) *Client {
	return &Client{WithWatch: objects, reviews: reviews}
}

// Create creates the object. What the API server says of a user changes with the credentials, such as the id of a token: a
// refusal has the client ask again, once.
func (c *Client) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	field := requesterOf(object)
	if field == nil {
		return c.WithWatch.Create(ctx, object, opts...)
	}
	*field = c.known()
	err := c.WithWatch.Create(ctx, object, opts...)
	if !isAskedFor(err) {
		return err
	}
	user, reviewErr := c.ask(ctx)
	if reviewErr != nil {
		return fmt.Errorf("%w (asking the API server who the user is: %w)", err, reviewErr)
	}
	*field = user
	return c.WithWatch.Create(ctx, object, opts...)
}

// requesterOf is where an object says who created it; nil for other kinds.
func requesterOf(object client.Object) **v1alpha1.Requester {
	switch o := object.(type) {
	case *v1alpha1.ToolCall:
		return &o.Spec.RequestedBy
	case *v1alpha1.ToolSession:
		return &o.Spec.RequestedBy
	case *v1alpha1.ToolCallApproval:
		return &o.Spec.Approver
	}
	return nil
}

func isAskedFor(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), refusal)
}

func (c *Client) known() *v1alpha1.Requester {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.user.DeepCopy()
}

func (c *Client) ask(ctx context.Context) (*v1alpha1.Requester, error) {
	review, err := c.reviews.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create a SelfSubjectReview: %w", err)
	}
	user := Requester(&review.Status.UserInfo)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.user = user
	return user.DeepCopy(), nil
}

// Requester is a user as calls and sessions name it.
func Requester(info *authenticationv1.UserInfo) *v1alpha1.Requester {
	user := &v1alpha1.Requester{Username: info.Username, UID: info.UID, Groups: info.Groups}
	for key, values := range info.Extra {
		if user.Extra == nil {
			user.Extra = map[string]v1alpha1.ExtraValue{}
		}
		user.Extra[key] = v1alpha1.ExtraValue(values)
	}
	return user
}
