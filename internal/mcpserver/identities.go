package mcpserver

import (
	"container/list"
	"crypto/sha256"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

// tokenKey identifies a token without storing it.
type tokenKey [sha256.Size]byte

// identities remembers whose the accepted tokens are. Only accepted tokens enter, so random tokens evict nobody, and
// each tenant evicts its own entries first.
type identities struct {
	// fresh is how long an answer counts, known how long a token is remembered as accepted before.
	fresh, known   time.Duration
	max, perTenant int

	mu      sync.Mutex
	entries map[tokenKey]*list.Element
	// tenants holds the entries of each tenant, the most recently used first.
	tenants map[string]*list.List
}

// knownToken is an accepted token.
type knownToken struct {
	key        tokenKey
	identity   *identity
	reviewedAt time.Time
}

func newIdentities(fresh time.Duration, maxTokens, perTenant int) *identities {
	return &identities{
		fresh: fresh, known: knownTTL, max: maxTokens, perTenant: perTenant,
		entries: map[tokenKey]*list.Element{}, tenants: map[string]*list.List{},
	}
}

// get returns the identity of a token that was accepted before, and whether the answer still counts.
func (i *identities) get(key tokenKey) (found *identity, fresh bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	element := i.entries[key]
	if element == nil {
		return nil, false
	}
	token := element.Value.(*knownToken)
	age := time.Since(token.reviewedAt)
	if age >= i.known {
		i.remove(element)
		return nil, false
	}
	i.tenants[token.identity.tenant].MoveToFront(element)
	return token.identity, age < i.fresh
}

// add remembers an accepted token.
func (i *identities) add(key tokenKey, found *identity) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if old := i.entries[key]; old != nil {
		i.remove(old)
	}
	if own := i.tenants[found.tenant]; own != nil && own.Len() >= i.perTenant {
		i.remove(own.Back())
	}
	if len(i.entries) >= i.max {
		i.remove(i.largestTenant().Back())
	}
	if i.tenants[found.tenant] == nil {
		i.tenants[found.tenant] = list.New()
	}
	i.entries[key] = i.tenants[found.tenant].PushFront(&knownToken{key: key, identity: found, reviewedAt: time.Now()})
}

func (i *identities) largestTenant() *list.List {
	var largest *list.List
	for _, tokens := range i.tenants {
		if largest == nil || tokens.Len() > largest.Len() {
			largest = tokens
		}
	}
	return largest
}

// forget removes a token that is not accepted any more.
func (i *identities) forget(key tokenKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if element := i.entries[key]; element != nil {
		i.remove(element)
	}
}

func (i *identities) remove(element *list.Element) {
	token := element.Value.(*knownToken)
	own := i.tenants[token.identity.tenant]
	own.Remove(element)
	if own.Len() == 0 {
		delete(i.tenants, token.identity.tenant)
	}
	delete(i.entries, token.key)
}

// rejections remembers rejected tokens for a short time, so that a client that repeats one costs no reviews. Each
// source has a bounded number of entries of its own: one source can't evict those of another.
type rejections struct {
	keep      time.Duration
	perSource int
	sources   *cache.LRUExpireCache
}

// rejected holds the recent rejected tokens of one source.
type rejected struct {
	mu     sync.Mutex
	tokens map[tokenKey]time.Time
	order  []tokenKey
}

func newRejections(keep time.Duration, maxSources, perSource int) *rejections {
	return &rejections{keep: keep, perSource: perSource, sources: cache.NewLRUExpireCache(maxSources)}
}

// has reports whether the token was rejected recently when it came from this source.
func (r *rejections) has(source string, key tokenKey) bool {
	found, ok := r.sources.Get(source)
	if !ok {
		return false
	}
	own := found.(*rejected)
	own.mu.Lock()
	defer own.mu.Unlock()
	at, ok := own.tokens[key]
	return ok && time.Since(at) < r.keep
}

// add remembers a rejected token in the place of the source's oldest one.
func (r *rejections) add(source string, key tokenKey) {
	own := &rejected{tokens: map[tokenKey]time.Time{}}
	if found, ok := r.sources.Get(source); ok {
		own = found.(*rejected)
	}
	own.mu.Lock()
	if _, again := own.tokens[key]; !again {
		if len(own.order) >= r.perSource {
			delete(own.tokens, own.order[0])
			own.order = own.order[1:]
		}
		own.order = append(own.order, key)
	}
	own.tokens[key] = time.Now()
	own.mu.Unlock()
	r.sources.Add(source, own, r.keep)
}
