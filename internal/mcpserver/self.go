package mcpserver

import (
	"context"
	"fmt"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
)

// self finds out who the user of a connection is. It asks once, and again only after an error.
type self struct {
	reviews authenticationv1client.SelfSubjectReviewInterface

	mu            sync.Mutex
	username, uid string
}

func newSelf(conf *rest.Config) (*self, error) {
	conf = rest.CopyConfig(conf)
	conf.UserAgent, conf.QPS = userAgent, -1
	client, err := authenticationv1client.NewForConfig(conf)
	if err != nil {
		return nil, fmt.Errorf("create the client for reviews: %w", err)
	}
	return &self{reviews: client.SelfSubjectReviews()}, nil
}

func (s *self) identify(ctx context.Context) (username, uid string, err error) {
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
