package subresources

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"toolcall.dev/operator/internal/dispatch/wire"
)

const (
	// maxTransfers bounds the requests for files and input that are served at the same time. Each takes up to a MiB of memory.
	maxTransfers           = 64
	maxTransfersPerSession = wire.MaxTransfers
)

// transferSlots bounds the requests for files and input.
type transferSlots struct {
	*slots
	bySession map[types.NamespacedName]int
}

func newTransferSlots(c clock.PassiveClock) *transferSlots {
	return &transferSlots{slots: newSlots("transfers", maxTransfers, c), bySession: map[types.NamespacedName]int{}}
}

// enterSession takes one of the session's places, for a user who may have it. The caller calls leave when the request has ended.
func (s *transferSlots) enterSession(session types.NamespacedName) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bySession[session] >= maxTransfersPerSession {
		return nil, tooMany("too many transfers at the same time: %d requests of the session", s.bySession[session])
	}
	s.bySession[session]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		decrease(s.bySession, session)
	}, nil
}
