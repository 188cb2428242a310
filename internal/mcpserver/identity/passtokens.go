package identity

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

var errInvalidToken = &TokenError{"the cluster doesn't accept this token: it may have expired"}

// TokenPasser accepts the tokens that the API server accepts, and has clients send them. It uses no credentials of its own.
type TokenPasser struct {
	// conf leads to the API server and has no credentials.
	conf    *rest.Config
	reviews rest.Interface
}

// NewTokenPasser uses the address of the API server from a connection, and none of its credentials.
func NewTokenPasser(conf *rest.Config) (*TokenPasser, error) {
	anonymous := rest.AnonymousClientConfig(conf)
	// API servers close HTTP/2 connections on which a token was rejected. Reviews have connections of their own, so
	// that the requests of users don't suffer from it.
	separate := rest.CopyConfig(anonymous)
	separate.NextProtos = []string{"http/1.1"}
	reviews, err := newReviews(separate)
	if err != nil {
		return nil, err
	}
	return &TokenPasser{conf: anonymous, reviews: reviews}, nil
}

// Review asks the API server whose a token is, with that token.
func (p *TokenPasser) Review(ctx context.Context, token string) (*Requester, error) {
	review := &authenticationv1.SelfSubjectReview{}
	switch err := post(ctx, p.reviews, "selfsubjectreviews", review, "Authorization", "Bearer "+token); {
	case apierrors.IsUnauthorized(err):
		return nil, errInvalidToken
	case err != nil:
		return nil, fmt.Errorf("ask the API server whose the token is: %w", err)
	}
	info := &review.Status.UserInfo
	if err := checkUser(info); err != nil {
		return nil, err
	}
	conf := rest.CopyConfig(p.conf)
	conf.BearerToken = token
	return newRequester(conf, info, info.UID)
}

// Check returns nil: passing tokens on needs no rights.
func (*TokenPasser) Check(context.Context) error { return nil }
