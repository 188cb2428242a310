package subresources

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/fair"
)

const (
	// maxTransfers bounds the requests for files and input that are served at the same time. Each takes up to a MiB of memory.
	maxTransfers           = 64
	maxTransfersPerSession = wire.MaxTransfers
)

// transferSlots bounds the requests for files and input.
type transferSlots struct {
	*slots
	sessions *fair.Counter[types.NamespacedName]
}

func newTransferSlots(c clock.PassiveClock) *transferSlots {
	return &transferSlots{newSlots("transfers", maxTransfers, c), fair.NewCounter[types.NamespacedName](fair.Unbounded, maxTransfersPerSession)}
}

// enterSession takes one of the session's places, for a user who may have it. The caller calls leave when the request has ended.
func (s *transferSlots) enterSession(session types.NamespacedName) (leave func(), err error) {
	place, ok := s.sessions.Acquire(1, session)
	if !ok {
		return nil, tooMany("too many transfers at the same time: %d requests of the session", maxTransfersPerSession)
	}
	return place.Release, nil
}
