package identity

import (
	"crypto/sha256"
	"sync"
	"time"
)

// knownTTL is how long an accepted token keeps its place apart from unknown tokens.
const knownTTL = time.Hour

// TokenKey identifies a token without storing it.
type TokenKey [sha256.Size]byte

// KeyOf returns the key of a token.
func KeyOf(token string) TokenKey { return sha256.Sum256([]byte(token)) }

// Accepted remembers whose the accepted tokens are. Only accepted tokens enter, so random tokens evict nobody, and
// each tenant evicts its own entries first.
type Accepted struct {
	// fresh is how long an answer counts.
	fresh          time.Duration
	max, perTenant int

	mu      sync.Mutex
	entries map[TokenKey]*acceptedToken
	// uses counts the uses of all tokens.
	uses int
}

// acceptedToken is an accepted token.
type acceptedToken struct {
	user       *Requester
	reviewedAt time.Time
	// lastUse is the number of its last use.
	lastUse int
}

// NewAccepted returns an empty memory.
func NewAccepted(fresh time.Duration, maxTokens, perTenant int) *Accepted {
	return &Accepted{fresh: fresh, max: maxTokens, perTenant: perTenant, entries: map[TokenKey]*acceptedToken{}}
}

// Get returns the user of a token that was accepted before, and whether the answer still counts.
func (a *Accepted) Get(key TokenKey) (user *Requester, fresh bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	token := a.entries[key]
	if token == nil {
		return nil, false
	}
	age := time.Since(token.reviewedAt)
	if age >= knownTTL {
		delete(a.entries, key)
		return nil, false
	}
	a.uses++
	token.lastUse = a.uses
	return token.user, age < a.fresh
}

// Add remembers an accepted token, in the place of another if a limit is reached.
func (a *Accepted) Add(key TokenKey, user *Requester) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.entries, key)
	counts, largest := map[string]int{}, ""
	for _, token := range a.entries {
		if counts[token.user.Tenant]++; counts[token.user.Tenant] > counts[largest] {
			largest = token.user.Tenant
		}
	}
	if counts[user.Tenant] >= a.perTenant {
		a.evict(user.Tenant)
	} else if len(a.entries) >= a.max {
		a.evict(largest)
	}
	a.uses++
	a.entries[key] = &acceptedToken{user: user, reviewedAt: time.Now(), lastUse: a.uses}
}

// evict removes the token of a tenant that was not used for the longest time.
func (a *Accepted) evict(tenant string) {
	var oldest TokenKey
	least := a.uses + 1
	for key, token := range a.entries {
		if token.user.Tenant == tenant && token.lastUse < least {
			oldest, least = key, token.lastUse
		}
	}
	delete(a.entries, oldest)
}

// Forget removes a token that is not accepted any more.
func (a *Accepted) Forget(key TokenKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.entries, key)
}

// Len is how many tokens are remembered.
func (a *Accepted) Len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.entries)
}
