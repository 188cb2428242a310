package console

import "sync"

// slots bound the requests that are served at the same time, in all and for one token.
type slots struct {
	total, perToken int

	mu      sync.Mutex
	used    int
	byToken map[tokenKey]int
}

func newSlots(total, perToken int) *slots {
	return &slots{total: total, perToken: perToken, byToken: map[tokenKey]int{}}
}

// take takes a slot, if there is one.
func (s *slots) take(key tokenKey) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.total || s.byToken[key] >= s.perToken {
		return nil, false
	}
	s.used++
	s.byToken[key]++
	return sync.OnceFunc(func() { s.release(key) }), true
}

func (s *slots) release(key tokenKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if s.byToken[key]--; s.byToken[key] == 0 {
		delete(s.byToken, key)
	}
}
