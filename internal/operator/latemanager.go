package operator

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cacheTimeout is how long the kubelet waits for the caches.
const cacheTimeout = time.Second

// lateManager is the manager, as soon as there is one: it can't be made before the cluster serves the kinds that it caches. It reads as
// the manager's client does; until there is one, reads fail with ErrCacheNotStarted.
type lateManager struct{ manager atomic.Pointer[ctrl.Manager] }

func (l *lateManager) set(m ctrl.Manager) { l.manager.Store(&m) }

// Get implements client.Reader.
func (l *lateManager) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	m := l.manager.Load()
	if m == nil {
		return &cache.ErrCacheNotStarted{}
	}
	return (*m).GetClient().Get(ctx, key, object, options...)
}

// List implements client.Reader.
func (l *lateManager) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	m := l.manager.Load()
	if m == nil {
		return &cache.ErrCacheNotStarted{}
	}
	return (*m).GetClient().List(ctx, list, options...)
}

// checkCaches says whether the replica can work, or follow the leader at once.
func (l *lateManager) checkCaches(r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), cacheTimeout)
	defer cancel()
	if m := l.manager.Load(); m == nil || !(*m).GetCache().WaitForCacheSync(ctx) {
		return errors.New("the caches are not filled yet")
	}
	return nil
}
