package fair

import (
	"math"
	"sync"
)

// Unbounded is a limit that nothing reaches.
const Unbounded = math.MaxInt64

// Counter bounds how much is in use: in total and, at each level of keys, by one key. The unit is the caller's, such as requests or
// bytes. It takes memory for each key that uses something.
type Counter[K comparable] struct {
	total int64
	each  []int64

	mu   sync.Mutex
	used int64
	by   []map[K]int64
}

// NewCounter makes one of a limit for all, and the limit of one key at each level of keys.
func NewCounter[K comparable](total int64, each ...int64) *Counter[K] {
	c := &Counter[K]{total: total, each: each, by: make([]map[K]int64, len(each))}
	for level := range c.by {
		c.by[level] = map[K]int64{}
	}
	return c
}

// Share is an amount that is in use.
type Share[K comparable] struct {
	of     *Counter[K]
	keys   []K
	amount int64
}

// Acquire takes an amount under one key of each level. It isn't ok, and nothing is taken, when that exceeds a limit, or the amount is
// negative. The caller releases the share.
func (c *Counter[K]) Acquire(amount int64, keys ...K) (share *Share[K], ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if amount < 0 || amount > c.total-c.used {
		return nil, false
	}
	for level, key := range keys {
		if amount > c.each[level]-c.by[level][key] {
			return nil, false
		}
	}
	c.add(keys, amount)
	return &Share[K]{c, keys, amount}, true
}

// Shrink gives back what exceeds an amount, which isn't negative.
func (s *Share[K]) Shrink(to int64) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if to < s.amount {
		s.of.add(s.keys, to-s.amount)
		s.amount = to
	}
}

// Release gives everything back. Calling it more than once is fine.
func (s *Share[K]) Release() { s.Shrink(0) }

// Used is how much is in use in total, in the unit of the limits.
func (c *Counter[K]) Used() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// add needs the lock.
func (c *Counter[K]) add(keys []K, amount int64) {
	c.used += amount
	for level, key := range keys {
		if c.by[level][key] += amount; c.by[level][key] == 0 {
			delete(c.by[level], key)
		}
	}
}
