package subresources

import (
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// Bounds of the requests for files and input that are served at the same time. Each takes up to a MiB of memory.
const (
	maxTransfers           = 64
	maxTransfersPerUser    = 16
	maxTransfersPerSession = wire.MaxTransfers
)

// transferSlots counts the requests for files and input.
type transferSlots struct {
	mu        sync.Mutex
	total     int
	byUser    map[string]int
	bySession map[types.NamespacedName]int
}

func newTransferSlots() *transferSlots {
	return &transferSlots{byUser: map[string]int{}, bySession: map[types.NamespacedName]int{}}
}

// enter lets one more request in. The caller calls leave when it has ended.
func (s *transferSlots) enter(user string, session types.NamespacedName) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= maxTransfers || s.byUser[user] >= maxTransfersPerUser || s.bySession[session] >= maxTransfersPerSession {
		return nil, tooMany("too much is carried at the same time: %d requests of the session, %d of %q, %d of all", s.bySession[session], s.byUser[user], user, s.total)
	}
	s.total++
	s.byUser[user]++
	s.bySession[session]++
	return func() { s.leave(user, session) }, nil
}

func (s *transferSlots) leave(user string, session types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.byUser[user]--; s.byUser[user] == 0 {
		delete(s.byUser, user)
	}
	if s.bySession[session]--; s.bySession[session] == 0 {
		delete(s.bySession, session)
	}
}

func tooMany(format string, args ...any) error {
	return statusError(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}, format, args...)
}
