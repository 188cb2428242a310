package dispatch

import "context"

// arrival is a runner that somebody waits for.
type arrival struct {
	came  chan struct{}
	users int
}

// awaitRunner returns the runner that holds a key, when it comes back within ReconnectWait.
func (h *Hub) awaitRunner(ctx context.Context, keyHash string) (*Runner, error) {
	if s := h.RunnerByKey(keyHash); s != nil {
		return s, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, ReconnectWait, ErrAway)
	defer cancel()
	for {
		s, a := h.expect(keyHash)
		if s != nil {
			return s, nil
		}
		select {
		case <-a.came:
		case <-ctx.Done():
			h.expectNoMore(keyHash, a)
			return nil, context.Cause(ctx)
		}
	}
}

// expect returns the runner, or what tells that it comes.
func (h *Hub) expect(keyHash string) (*Runner, *arrival) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.keys[keyHash]; s != nil {
		return s, nil
	}
	a := h.expected[keyHash]
	if a == nil {
		a = &arrival{came: make(chan struct{})}
		h.expected[keyHash] = a
	}
	a.users++
	return nil, a
}

// expectNoMore is for one who gives up before the runner comes.
func (h *Hub) expectNoMore(keyHash string, a *arrival) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.users--; a.users == 0 && h.expected[keyHash] == a {
		delete(h.expected, keyHash)
	}
}

// arrive tells those who wait for the runner. It needs the lock.
func (h *Hub) arrive(s *Runner) {
	if a := h.expected[s.keyHash]; a != nil {
		close(a.came)
		delete(h.expected, s.keyHash)
	}
}
