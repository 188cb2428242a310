package mcpserver

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/rest"
)

const (
	// identityTTL is how long an answer about a token counts. The API server checks the token at every call.
	identityTTL = 10 * time.Second
	// maxIdentities bounds the answers that are kept.
	maxIdentities = 4096
	// reviewTimeout and maxReviews bound the questions to the API server.
	reviewTimeout = 10 * time.Second
	maxReviews    = 32
	// maxToken is longer than any token of the API server's.
	maxToken = 16 << 10
)

// bearer is the Authorization header of RFC 6750.
var bearer = regexp.MustCompile(`^(?i:bearer) +([A-Za-z0-9._~+/-]+=*) *$`)

var (
	errNoToken      = errors.New("send the token of a Kubernetes user or ServiceAccount as Authorization: Bearer TOKEN")
	errInvalidToken = errors.New("the cluster doesn't accept this token: it may have expired")
	errAnonymous    = errors.New("the cluster takes this token for an anonymous user's: a token of a user or ServiceAccount is needed")
	errBusy         = errors.New("too many tokens are being checked: try again")
)

// identity is an authenticated user with the clients that act as that user.
type identity struct {
	*clients
	username, uid string
}

// authenticator finds out whose a token is, by asking the API server with that very token. It needs no rights.
type authenticator struct {
	// conf leads to the API server and holds no credentials.
	conf    *rest.Config
	known   *cache.LRUExpireCache
	reviews chan struct{}
}

// newAuthenticator takes where the API server is from a connection, and leaves its credentials behind.
func newAuthenticator(conf *rest.Config) *authenticator {
	return &authenticator{
		conf: rest.AnonymousClientConfig(conf), known: cache.NewLRUExpireCache(maxIdentities),
		reviews: make(chan struct{}, maxReviews),
	}
}

// authenticate finds out who sent a request.
func (a *authenticator) authenticate(r *http.Request) (*identity, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) != 1 || len(headers[0]) > maxToken {
		return nil, errNoToken
	}
	match := bearer.FindStringSubmatch(headers[0])
	if match == nil {
		return nil, errNoToken
	}
	key := sha256.Sum256([]byte(match[1]))
	if found, ok := a.known.Get(key); ok {
		return found.(*identity), nil
	}
	found, err := a.review(r.Context(), match[1])
	if err != nil {
		return nil, err
	}
	a.known.Add(key, found, identityTTL)
	return found, nil
}

func (a *authenticator) review(ctx context.Context, token string) (*identity, error) {
	select {
	case a.reviews <- struct{}{}:
		defer func() { <-a.reviews }()
	default:
		return nil, errBusy
	}
	conf := rest.CopyConfig(a.conf)
	conf.BearerToken = token
	c, err := connect(conf)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := c.whoami.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsUnauthorized(err):
		return nil, errInvalidToken
	case err != nil:
		return nil, fmt.Errorf("ask the API server whose the token is: %w", err)
	}
	user := review.Status.UserInfo
	if user.Username == "" || user.Username == "system:anonymous" || slices.Contains(user.Groups, "system:unauthenticated") {
		return nil, errAnonymous
	}
	return &identity{clients: c, username: user.Username, uid: user.UID}, nil
}

// unauthenticated says whether the token is to blame.
func unauthenticated(err error) bool {
	return errors.Is(err, errNoToken) || errors.Is(err, errInvalidToken) || errors.Is(err, errAnonymous)
}
