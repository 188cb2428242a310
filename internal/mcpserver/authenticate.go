package mcpserver

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/serving"
	"toolcall.dev/operator/internal/serving/limits"
)

const (
	// identityTTL is how long an answer about a token counts, also after the token was revoked. A token that is passed on is checked at
	// every request to the API server.
	identityTTL = 10 * time.Second
	// maxKnownTokens and maxKnownTokensPerTenant bound the accepted tokens that are remembered.
	maxKnownTokens          = 4096
	maxKnownTokensPerTenant = maxKnownTokens / 4
	// rejectedTTL is how long a rejected token is remembered. It is short: a token that was just issued can be rejected
	// until every API server knows its account.
	rejectedTTL = 5 * time.Second
	// maxRejected bounds the rejected tokens that are remembered. One that is forgotten earlier is reviewed again.
	maxRejected = 32 << 10
	// reviewTimeout bounds one request's wait for its review, including the queue.
	reviewTimeout = 10 * time.Second
)

var (
	// unknownLimits bounds reviews of tokens that were not accepted before. Sources are addresses.
	unknownLimits = limits.QueueLimits{Running: 32, RunningPerSource: 4, Waiting: 1024, WaitingPerSource: 64}
	// knownLimits bounds reviews of tokens that were accepted before. Sources are tenants.
	knownLimits = limits.QueueLimits{Running: 32, RunningPerSource: 8, Waiting: 4096, WaitingPerSource: 1024}
)

var errNoToken = errors.New("send a token for this server in the header Authorization: Bearer TOKEN")

// reviewer finds out whose a token is. The error is an identity.TokenError if the token is its cause. Check says why the server can't act for
// anybody.
type reviewer interface {
	Review(ctx context.Context, token string) (*identity.Requester, error)
	Check(ctx context.Context) error
}

// authenticator finds out whose tokens are by having the API server review them.
//
// Unknown tokens wait in a queue in which source addresses take turns. Tokens that were accepted before don't wait for
// unknown ones: they have a queue of their own, in which tenants take turns.
type authenticator struct {
	reviewer   reviewer
	sources    *limits.Sources
	identities *identity.Accepted
	// rejections are the errors of rejected tokens by their keys.
	rejections *cache.LRUExpireCache
	// unknownTokens and knownTokens bound the reviews.
	unknownTokens, knownTokens *limits.Queue
}

func newAuthenticator(r reviewer, s *limits.Sources) *authenticator {
	return &authenticator{
		reviewer: r, sources: s,
		identities:    identity.NewAccepted(identityTTL, maxKnownTokens, maxKnownTokensPerTenant),
		rejections:    cache.NewLRUExpireCache(maxRejected),
		unknownTokens: limits.NewQueue(unknownLimits), knownTokens: limits.NewQueue(knownLimits),
	}
}

// authenticate returns the sender of a request.
func (a *authenticator) authenticate(r *http.Request) (*identity.Requester, error) {
	token := serving.BearerToken(r)
	if token == "" {
		return nil, errNoToken
	}
	key, source := identity.KeyOf(token), a.sources.OfRequest(r)
	found, fresh, err := a.recall(key)
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
	if found, fresh, err := a.recall(key); fresh || err != nil {
		return found, err
	}
	found, err = a.reviewer.Review(ctx, token)
	switch {
	case isTokenError(err):
		a.identities.Forget(key)
		a.rejections.Add(key, err, rejectedTTL)
	case err == nil:
		a.identities.Add(key, found)
	}
	return found, err
}

// recall returns what is known about a token without a review. The identity is not fresh if it needs a new review.
func (a *authenticator) recall(key identity.TokenKey) (found *identity.Requester, fresh bool, err error) {
	if found, fresh = a.identities.Get(key); found == nil {
		why, _ := a.rejections.Get(key)
		err, _ = why.(error)
		return nil, false, err
	}
	return found, fresh, nil
}

// isTokenError reports whether the token is the cause of an error.
func isTokenError(err error) bool {
	_, rejected := errors.AsType[*identity.TokenError](err)
	return rejected || errors.Is(err, errNoToken)
}
