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

// Add remembers an accepted token; if a limit is reached, in the place of the tenant's, or the largest one's, that was not used for the
// longest time.
func (a *Accepted) Add(key TokenKey, user *Requester) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.entries, key)
	counts, oldest, largest := map[string]int{}, map[string]TokenKey{}, ""
	for one, token := range a.entries {
		tenant := token.user.Tenant
		if counts[tenant]++; counts[tenant] > counts[largest] {
			largest = tenant
		}
		if found := a.entries[oldest[tenant]]; found == nil || token.lastUse < found.lastUse {
			oldest[tenant] = one
		}
	}
	if counts[user.Tenant] >= a.perTenant {
		delete(a.entries, oldest[user.Tenant])
	} else if len(a.entries) >= a.max {
		delete(a.entries, oldest[largest])
	}
	a.uses++
	a.entries[key] = &acceptedToken{user: user, reviewedAt: time.Now(), lastUse: a.uses}
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
