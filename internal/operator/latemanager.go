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

// lateManager is the manager, as soon as there is one: it can't be made before the cluster serves the kinds that it caches.
type lateManager struct{ manager atomic.Pointer[ctrl.Manager] }

func (l *lateManager) set(m ctrl.Manager) { l.manager.Store(&m) }

// reader returns a reader that uses the part of the manager that `what` selects. Until there is a manager, its reads fail with
// ErrCacheNotStarted.
func (l *lateManager) reader(what func(ctrl.Manager) client.Reader) client.Reader {
	return &lateReader{manager: l, what: what}
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

type lateReader struct {
	manager *lateManager
	what    func(ctrl.Manager) client.Reader
}

// Get implements client.Reader.
func (l *lateReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	m := l.manager.manager.Load()
	if m == nil {
		return &cache.ErrCacheNotStarted{}
	}
	return l.what(*m).Get(ctx, key, object, options...)
}

// List implements client.Reader.
func (l *lateReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	m := l.manager.manager.Load()
	if m == nil {
		return &cache.ErrCacheNotStarted{}
	}
	return l.what(*m).List(ctx, list, options...)
}
