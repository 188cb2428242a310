package toolcall

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// Bounds of the Events about one namespace's calls, and of the records in the log: a flood of denials must not fill etcd
// or the log, nor hide what else happens.
const (
	ratePerSecond = 5
	rateBurst     = 100
	// maxLimitedNamespaces bounds the namespaces that are remembered; the one that was quiet the longest is forgotten.
	maxLimitedNamespaces = 4096
)

// rateLimits bounds what is written about calls, namespace by namespace. Two that are the first of a namespace at the same time
// may each count for themselves.
type rateLimits struct{ limiters *lru.Cache }

func newRateLimits() *rateLimits { return &rateLimits{limiters: lru.New(maxLimitedNamespaces)} }

// allow says whether the namespace may have another one.
func (l *rateLimits) allow(namespace string, now time.Time) bool {
	limiter, ok := l.limiters.Get(namespace)
	if !ok {
		limiter = rate.NewLimiter(ratePerSecond, rateBurst)
		l.limiters.Add(namespace, limiter)
	}
	return limiter.(*rate.Limiter).AllowN(now, 1)
}
