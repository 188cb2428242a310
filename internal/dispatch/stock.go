package dispatch

// stock are the waiting runners that may be given to calls, by what their pods were made from. A runner that
// is taken is kept for the call that took it until that call lets go of it: a call whose write failed half way
// finds the same runner again, never a second one.
type stock struct {
	idle  map[string][]*Session
	shelf map[*Session]string
	taken map[string]*Session
}

func newStock() stock {
	return stock{idle: map[string][]*Session{}, shelf: map[*Session]string{}, taken: map[string]*Session{}}
}

// drop forgets a session whose connection ended.
func (k *stock) drop(s *Session) {
	k.unshelve(s)
	for uid, taken := range k.taken {
		if taken == s {
			delete(k.taken, uid)
		}
	}
}

// replace puts a runner's new connection in the place of its old one.
func (k *stock) replace(old, s *Session) {
	k.unshelve(old)
	for uid, taken := range k.taken {
		if taken == old {
			k.taken[uid] = s
			s.setCall(old.Call())
		}
	}
}

func (k *stock) unshelve(s *Session) {
	template, ok := k.shelf[s]
	if !ok {
		return
	}
	delete(k.shelf, s)
	list := k.idle[template]
	for i := range list {
		if list[i] == s {
			k.idle[template] = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if len(k.idle[template]) == 0 {
		delete(k.idle, template)
	}
}

func (k *stock) isTaken(s *Session) bool {
	for _, taken := range k.taken {
		if taken == s {
			return true
		}
	}
	return false
}

// Offer lets calls take the runner, if it is still the Job's and waits. Offering it twice is fine.
func (h *Hub) Offer(s *Session, template string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	current := h.sessions[s.hello.JobUID] == s
	if _, shelved := h.stock.shelf[s]; shelved || !current || s.CallUID() != "" || h.stock.isTaken(s) {
		return
	}
	h.stock.shelf[s] = template
	h.stock.idle[template] = append(h.stock.idle[template], s)
}

// Offered says that calls may take a Job's runner.
func (h *Hub) Offered(jobUID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, shelved := h.stock.shelf[h.sessions[jobUID]]
	return shelved
}

// Take gives a call the waiting runner that it took before, or the one that has waited longest; nil when none
// waits.
func (h *Hub) Take(template, call, callUID string) *Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.stock.taken[callUID]; s != nil {
		return s
	}
	list := h.stock.idle[template]
	if len(list) == 0 {
		return nil
	}
	s := list[0]
	h.stock.unshelve(s)
	h.stock.taken[callUID] = s
	s.setCall(call)
	return s
}

// Settle ends a call's claim: its runner is recorded as the call's, or refused; it never goes back.
func (h *Hub) Settle(callUID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.stock.taken, callUID)
}

// Taken returns the runner that a call took and that isn't recorded as the call's yet.
func (h *Hub) Taken(callUID string) *Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stock.taken[callUID]
}

// Withdraw takes a Job's runner out of the stock for good, so that its pod may be removed. It says false when a
// call has it.
func (h *Hub) Withdraw(jobUID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sessions[jobUID]
	if s == nil {
		return true
	}
	if s.CallUID() != "" || h.stock.isTaken(s) {
		return false
	}
	h.stock.unshelve(s)
	return true
}

// Busy says that a Job's runner has a call, or was taken by one.
func (h *Hub) Busy(jobUID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sessions[jobUID]
	return s != nil && (s.CallUID() != "" || h.stock.isTaken(s))
}

// Waiting counts the runners that calls may take.
func (h *Hub) Waiting(template string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.stock.idle[template])
}
