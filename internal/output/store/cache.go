package store

import (
	"context"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
	"k8s.io/utils/lru"
)

// partCache has the parts that were read last, for all readers: many who read the same stream at once cost no more memory
// than one. What is in it was checked, and isn't changed.
type partCache struct {
	parts   *lru.Cache
	loading singleflight.Group
	// loads are under way, at most so many.
	loads *semaphore.Weighted
	most  int64
	// ctx ends when the cache closes; loading goes by it, since whoever began it may leave.
	ctx  context.Context
	stop context.CancelFunc
}

func newPartCache(size int, loads int64) *partCache {
	ctx, stop := context.WithCancel(context.Background())
	return &partCache{parts: lru.New(size), loads: semaphore.NewWeighted(loads), most: loads, ctx: ctx, stop: stop}
}

// load returns what fetch returns, which is called once for everybody who asks at the same time.
func (c *partCache) load(ctx context.Context, key string, fetch func(context.Context) ([]byte, error)) ([]byte, error) {
	if data, ok := c.parts.Get(key); ok {
		return data.([]byte), nil
	}
	if c.ctx.Err() != nil {
		return nil, errClosed
	}
	loaded := c.loading.DoChan(key, func() (any, error) {
		if err := c.loads.Acquire(c.ctx, 1); err != nil {
			return nil, err
		}
		defer c.loads.Release(1)
		data, err := fetch(c.ctx)
		if err == nil {
			c.parts.Add(key, data)
		}
		return data, err
	})
	select {
	case one := <-loaded:
		data, _ := one.Val.([]byte)
		return data, one.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// close ends what is being loaded, and waits for it.
func (c *partCache) close() {
	c.stop()
	_ = c.loads.Acquire(context.Background(), c.most)
}
