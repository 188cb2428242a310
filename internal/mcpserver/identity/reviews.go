package identity

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
)

// TokenError says why a token isn't accepted. Other errors of reviews aren't the token's.
type TokenError struct{ text string }

func (e *TokenError) Error() string { return e.text }

var errAnonymous = &TokenError{"the token belongs to an anonymous user: send the token of a user or ServiceAccount"}

// checkUser returns an error for what isn't a user.
func checkUser(info *authenticationv1.UserInfo) error {
	if info.Username == "" || info.Username == user.Anonymous || slices.Contains(info.Groups, user.AllUnauthenticated) {
		return errAnonymous
	}
	return nil
}

// newReviews returns a client for reviews.
func newReviews(conf *rest.Config) (rest.Interface, error) {
	client, err := authenticationv1client.NewForConfig(named(conf))
	if err != nil {
		return nil, fmt.Errorf("create the client for reviews: %w", err)
	}
	return client.RESTClient(), nil
}

// named returns the connection with this program's name. The API server throttles its clients, and this server bounds the calls of each user.
func named(conf *rest.Config) *rest.Config {
	conf = rest.CopyConfig(conf)
	conf.UserAgent, conf.QPS = UserAgent, -1
	return conf
}

// post sends a review, with a header unless it has no name. Reviews change nothing: with this header, the transport sends them again after the loss of a connection.
func post(ctx context.Context, reviews rest.Interface, resource string, review runtime.Object, header, value string) error {
	request := reviews.Post().Resource(resource).SetHeader("Idempotency-Key", "review").Body(review)
	if header != "" {
		request.SetHeader(header, value)
	}
	return request.Do(ctx).Into(review)
}
