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
	// maxRemovals is how many calls may wait for the removal of their output, and maxRemovalTries how often one is tried. The sweep
	// finds the others.
	maxRemovals     = 10_000
	maxRemovalTries = 10
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
}

func newRemovals(s *store.Store, log logr.Logger) *removals {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](minRemovalPause, maxRemovalPause)
	r := &removals{store: s, log: log, queue: workqueue.NewTypedRateLimitingQueue(limiter)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	for range concurrentRemovals {
		r.running.Go(r.work)
	}
	return r
}

// add has the output of a call removed, unless too many wait for that.
func (r *removals) add(uid types.UID) {
	if r.queue.Len() < maxRemovals {
		r.queue.Add(uid)
	}
}

func (r *removals) work() {
	for {
		uid, over := r.queue.Get()
		if over {
			return
		}
		r.remove(uid)
		r.queue.Done(uid)
	}
}

func (r *removals) remove(uid types.UID) {
	err := r.store.Delete(r.ctx, uid)
	if err == nil || r.ctx.Err() != nil {
		r.queue.Forget(uid)
		return
	}
	metrics.CountStoreError(metrics.StoreDelete)
	r.log.Error(err, "Failed to remove the output of a call; retrying", "uid", uid)
	if r.queue.NumRequeues(uid) < maxRemovalTries {
		r.queue.AddRateLimited(uid)
	} else {
		r.queue.Forget(uid)
	}
}

func (r *removals) close() {
	r.stop()
	r.queue.ShutDown()
	r.running.Wait()
}
