package output

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/output/store"
)

const (
	// maxRemovals is how many calls' output is remembered to be removed. The sweep finds the others.
	maxRemovals = 10_000
	// concurrentRemovals is how many calls' output is removed at the same time.
	concurrentRemovals = 4
	// minRemovalPause and maxRemovalPause are between the attempts to remove the output of a call.
	minRemovalPause = time.Second
	maxRemovalPause = 5 * time.Minute
)

// removals removes the output of calls that are gone, and tries again while the store is away.
type removals struct {
	store   *store.Store
	log     logr.Logger
	queue   workqueue.TypedRateLimitingInterface[types.UID]
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	pending map[types.UID]struct{}
}

func newRemovals(s *store.Store, log logr.Logger) *removals {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](minRemovalPause, maxRemovalPause)
	r := &removals{store: s, log: log, queue: workqueue.NewTypedRateLimitingQueue(limiter), pending: map[types.UID]struct{}{}}
	r.ctx, r.stop = context.WithCancel(context.Background())
	for range concurrentRemovals {
		r.running.Go(r.work)
	}
	return r
}

// add has the output of a call removed, unless too many wait for that.
func (r *removals) add(uid types.UID) {
	r.mu.Lock()
	_, has := r.pending[uid]
	if !has && len(r.pending) >= maxRemovals {
		r.mu.Unlock()
		return
	}
	r.pending[uid] = struct{}{}
	r.mu.Unlock()
	r.queue.Add(uid)
}

func (r *removals) work() {
	for {
		uid, over := r.queue.Get()
		if over {
			return
		}
		if err := r.store.Delete(r.ctx, uid); err != nil && r.ctx.Err() == nil {
			metrics.CountStoreError(metrics.StoreDelete)
			r.log.Error(err, "Failed to remove the output of a call; retrying", "uid", uid)
			r.queue.AddRateLimited(uid)
		} else {
			r.queue.Forget(uid)
			r.mu.Lock()
			delete(r.pending, uid)
			r.mu.Unlock()
		}
		r.queue.Done(uid)
	}
}

func (r *removals) close() {
	r.stop()
	r.queue.ShutDown()
	r.running.Wait()
}
