package identity

import (
	"context"
	"fmt"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	outputclient "toolcall.dev/operator/internal/output/client"
)

// Calls follows and cancels tool calls, and follows their sessions. follow.Clients implements it.
type Calls interface {
	Wait(ctx context.Context, key types.NamespacedName, w follow.Watcher) (*v1alpha1.ToolCall, error)
	Cancel(ctx context.Context, key types.NamespacedName, uid types.UID) (*v1alpha1.ToolCall, error)
	WaitSession(ctx context.Context, session *v1alpha1.ToolSession, w follow.SessionWatcher) (*v1alpha1.ToolSession, error)
}

// Requester is the user that a request acts for, and the namespace that it acts in.
type Requester struct {
	// Calls, Objects and Output act as the requester. Output reads the files of sessions, too.
	Calls   Calls
	Objects client.Client
	Output  *outputclient.Client
	// Namespace of the requester's calls.
	Namespace string
	// User and Tenant are names for logs and limits. They grant nothing.
	User, Tenant string
	// accountUID tells accounts of one name apart that were there one after the other.
	accountUID string

	*self
}

// self is the user as the API server knows it.
type self struct {
	reviews authenticationv1client.SelfSubjectReviewInterface

	mu sync.Mutex
	// username and uid are empty until the API server has said them.
	username, uid string
}

// Identify returns the name and the UID of the user as the API server knows it. It asks once, and again only after an error.
func (s *self) Identify(ctx context.Context) (username, uid string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.username != "" {
		return s.username, s.uid, nil
	}
	review, err := s.reviews.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", "", fmt.Errorf("ask the API server who the user is: %w", err)
	}
	s.username, s.uid = review.Status.UserInfo.Username, review.Status.UserInfo.UID
	return s.username, s.uid, nil
}
