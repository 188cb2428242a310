package toolcall

import (
	"sync"
	"time"
)

// startsBusyWait is when a call is looked at again whose namespace has as many creations under way as it may.
const startsBusyWait = 20 * time.Millisecond

// shares bounds how many creations of Jobs are under way in one namespace: a slow admission webhook of one namespace
// then keeps only a part of the workers, and never those that write results.
type shares struct {
	each int

	mu    sync.Mutex
	inUse map[string]int
}

func newShares(each int) *shares { return &shares{each: each, inUse: map[string]int{}} }

// acquire takes a share, if there is one. release gives it back.
func (s *shares) acquire(namespace string) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inUse[namespace] >= s.each {
		return nil, false
	}
	s.inUse[namespace]++
	return func() { s.giveBack(namespace) }, true
}

func (s *shares) giveBack(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inUse[namespace]--; s.inUse[namespace] == 0 {
		delete(s.inUse, namespace)
	}
}
