package store

import (
	"container/list"
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// partCache has the parts that were read last, for all readers: many who read the same stream at once cost no more memory
// than one. What is in it was checked, and isn't changed.
type partCache struct {
	size  int
	loads *semaphore.Weighted
	// ctx ends when the cache closes; loading goes by it, since whoever began it may leave.
	ctx     context.Context
	stop    context.CancelFunc
	loading sync.WaitGroup

	mu      sync.Mutex
	entries map[string]*entry
	// recent has the loaded entries, the one that was used last in front.
	recent *list.List
}

// entry is a part that is loaded or being loaded; data and err may be read when ready is closed.
type entry struct {
	key   string
	ready chan struct{}
	place *list.Element
	data  []byte
	err   error
}

func newPartCache(size int, loads int64) *partCache {
	ctx, stop := context.WithCancel(context.Background())
	return &partCache{
		size: size, loads: semaphore.NewWeighted(loads), ctx: ctx, stop: stop, entries: map[string]*entry{}, recent: list.New(),
	}
}

// load returns what fetch returns, which is called once for everybody who asks at the same time.
func (c *partCache) load(ctx context.Context, key string, fetch func(context.Context) ([]byte, error)) ([]byte, error) {
	e, err := c.find(key, fetch)
	if err != nil {
		return nil, err
	}
	select {
	case <-e.ready:
		return e.data, e.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// find returns the entry of a key, and begins to load it when it isn't there.
func (c *partCache) find(key string, fetch func(context.Context) ([]byte, error)) (*entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil {
		if e.place != nil {
			c.recent.MoveToFront(e.place)
		}
		return e, nil
	}
	if c.ctx.Err() != nil {
		return nil, errClosed
	}
	e := &entry{key: key, ready: make(chan struct{})}
	c.entries[key] = e
	c.loading.Go(func() { c.fill(e, fetch) })
	return e, nil
}

func (c *partCache) fill(e *entry, fetch func(context.Context) ([]byte, error)) {
	defer close(e.ready)
	if e.err = c.loads.Acquire(c.ctx, 1); e.err == nil {
		e.data, e.err = fetch(c.ctx)
		c.loads.Release(1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.err != nil {
		// The next one tries again.
		delete(c.entries, e.key)
		return
	}
	e.place = c.recent.PushFront(e)
	for c.recent.Len() > c.size {
		oldest := c.recent.Remove(c.recent.Back()).(*entry)
		delete(c.entries, oldest.key)
	}
}

func (c *partCache) close() {
	c.mu.Lock()
	c.stop()
	c.mu.Unlock()
	c.loading.Wait()
}
