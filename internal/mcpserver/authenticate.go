package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/limits"
)

const (
	// identityTTL is how long an answer about a token counts. The API server checks the token at every call.
	identityTTL = 10 * time.Second
	// maxKnownTokens and maxKnownTokensPerTenant bound the accepted tokens that are remembered.
	maxKnownTokens          = 4096
	maxKnownTokensPerTenant = maxKnownTokens / 4
	// rejectedTTL is how long a rejected token is remembered. It is short: a token that was just issued can be rejected
	// until every API server knows its account.
	rejectedTTL = 5 * time.Second
	// maxRejectedSources and maxRejectedPerSource bound the rejected tokens that are remembered.
	maxRejectedSources   = 1024
	maxRejectedPerSource = 32
	// reviewTimeout bounds one request's wait for its review, including the queue.
	reviewTimeout = 10 * time.Second
	// maxToken is longer than any token that an API server issues.
	maxToken = 16 << 10
)

var (
	// unknownLimits bounds reviews of tokens that were not accepted before. Sources are addresses.
	unknownLimits = limits.QueueLimits{Running: 32, RunningPerSource: 4, Waiting: 1024, WaitingPerSource: 64}
	// knownLimits bounds reviews of tokens that were accepted before. Sources are tenants.
	knownLimits = limits.QueueLimits{Running: 32, RunningPerSource: 8, Waiting: 4096, WaitingPerSource: 1024}
)

// bearer is the Authorization header of RFC 6750.
var bearer = regexp.MustCompile(`^(?i:bearer) +([A-Za-z0-9._~+/-]+=*) *$`)

var (
	errNoToken      = errors.New("send the token of a Kubernetes user or ServiceAccount in the header Authorization: Bearer TOKEN")
	errInvalidToken = errors.New("the cluster doesn't accept this token: it may have expired")
	errAnonymous    = errors.New("the token belongs to an anonymous user: send the token of a user or ServiceAccount")
)

// authenticator finds out whose a token is by asking the API server with that token. It needs no permissions.
//
// Unknown tokens wait in a queue in which source addresses take turns. Tokens that were accepted before don't wait for
// unknown ones: they have a queue of their own, in which tenants take turns.
type authenticator struct {
	// conf leads to the API server and has no credentials.
	conf       *rest.Config
	reviews    rest.Interface
	sources    *limits.Sources
	identities *identity.Accepted
	rejections *identity.Rejected
	// unknownTokens and knownTokens bound the reviews.
	unknownTokens, knownTokens *limits.Queue
}

// newAuthenticator uses the address of the API server from conf, and none of its credentials.
func newAuthenticator(conf *rest.Config, s *limits.Sources) (*authenticator, error) {
	anonymous := rest.AnonymousClientConfig(conf)
	anonymous.UserAgent, anonymous.QPS = identity.UserAgent, -1
	// API servers close HTTP/2 connections on which a token was rejected. Reviews have connections of their own, so
	// that the requests of users don't suffer from it.
	separate := rest.CopyConfig(anonymous)
	separate.NextProtos = []string{"http/1.1"}
	client, err := authenticationv1client.NewForConfig(separate)
	if err != nil {
		return nil, fmt.Errorf("create the client for token reviews: %w", err)
	}
	return &authenticator{
		conf: anonymous, reviews: client.RESTClient(), sources: s,
		identities:    identity.NewAccepted(identityTTL, maxKnownTokens, maxKnownTokensPerTenant),
		rejections:    identity.NewRejected(rejectedTTL, maxRejectedSources, maxRejectedPerSource),
		unknownTokens: limits.NewQueue(unknownLimits), knownTokens: limits.NewQueue(knownLimits),
	}, nil
}

// authenticate returns the sender of a request.
func (a *authenticator) authenticate(r *http.Request) (*identity.Requester, error) {
	token, err := bearerToken(r)
	if err != nil {
		return nil, err
	}
	key, source := identity.KeyOf(token), a.sources.OfRequest(r)
	found, fresh, err := a.recall(source, key)
	if fresh || err != nil {
		return found, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	queue, turn := a.unknownTokens, source
	if found != nil {
		queue, turn = a.knownTokens, found.Tenant
	}
	release, err := queue.Acquire(ctx, turn)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, limits.ErrBusy
	}
	if err != nil {
		return nil, err
	}
	defer release()
	// Another request with the same token may have got the answer meanwhile.
	if found, fresh, err := a.recall(source, key); fresh || err != nil {
		return found, err
	}
	found, err = a.review(ctx, token)
	switch {
	case isTokenError(err):
		a.identities.Forget(key)
		a.rejections.Add(source, key)
	case err == nil:
		a.identities.Add(key, found)
	}
	return found, err
}

// bearerToken returns the token of a request. A token that a header can't carry according to RFC 6750 is not reviewed.
// Nothing else is certain about the form of a token: it can be a JWT, a bootstrap token or any text that a webhook knows.
func bearerToken(r *http.Request) (string, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) != 1 || len(headers[0]) > maxToken {
		return "", errNoToken
	}
	match := bearer.FindStringSubmatch(headers[0])
	if match == nil {
		return "", errNoToken
	}
	return match[1], nil
}

// recall returns what is known about a token without a review. The identity is not fresh if it needs a new review.
func (a *authenticator) recall(source string, key identity.TokenKey) (found *identity.Requester, fresh bool, err error) {
	if found, fresh = a.identities.Get(key); found == nil && a.rejections.Has(source, key) {
		return nil, false, errInvalidToken
	}
	return found, fresh, nil
}

// review asks the API server whose the token is. Clients are only built for tokens that it accepts.
func (a *authenticator) review(ctx context.Context, token string) (*identity.Requester, error) {
	answer := &authenticationv1.SelfSubjectReview{}
	// A review changes nothing: with this header, the transport sends it again after the loss of a connection.
	err := a.reviews.Post().Resource("selfsubjectreviews").SetHeader("Idempotency-Key", "review").SetHeader("Authorization", "Bearer "+token).
		Body(&authenticationv1.SelfSubjectReview{}).Do(ctx).Into(answer)
	switch {
	case apierrors.IsUnauthorized(err):
		return nil, errInvalidToken
	case err != nil:
		return nil, fmt.Errorf("ask the API server whose the token is: %w", err)
	}
	user := answer.Status.UserInfo
	if user.Username == "" || user.Username == "system:anonymous" || slices.Contains(user.Groups, "system:unauthenticated") {
		return nil, errAnonymous
	}
	conf := rest.CopyConfig(a.conf)
	conf.BearerToken = token
	return identity.Authenticated(conf, &user)
}

// isTokenError reports whether the token is the cause of an error.
func isTokenError(err error) bool {
	return errors.Is(err, errNoToken) || errors.Is(err, errInvalidToken) || errors.Is(err, errAnonymous)
}
