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
	maxTransfers             = 64
	maxTransfersPerNamespace = 32
	maxTransfersPerUser      = 16
	maxTransfersPerSession   = wire.MaxTransfers
)

// transferSlots counts the requests for files and input.
type transferSlots struct {
	mu                  sync.Mutex
	total               int
	byUser, byNamespace map[string]int
	bySession           map[types.NamespacedName]int
}

func newTransferSlots() *transferSlots {
	return &transferSlots{byUser: map[string]int{}, byNamespace: map[string]int{}, bySession: map[types.NamespacedName]int{}}
}

// enter lets one more request in. The caller calls leave when it has ended.
func (s *transferSlots) enter(user, namespace string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= maxTransfers || s.byUser[user] >= maxTransfersPerUser || s.byNamespace[namespace] >= maxTransfersPerNamespace {
		return nil, tooMany("too much is carried at the same time: %d requests of the namespace, %d of %q, %d of all", s.byNamespace[namespace], s.byUser[user], user, s.total)
	}
	s.total++
	s.byUser[user]++
	s.byNamespace[namespace]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.total--
		decrease(s.byUser, user)
		decrease(s.byNamespace, namespace)
	}, nil
}

// enterSession takes one of the session's places, for a user who may have it. The caller calls leave when the request has ended.
func (s *transferSlots) enterSession(session types.NamespacedName) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bySession[session] >= maxTransfersPerSession {
		return nil, tooMany("too much is carried at the same time: %d requests of the session", s.bySession[session])
	}
	s.bySession[session]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		decrease(s.bySession, session)
	}, nil
}

func tooMany(format string, args ...any) error {
	return statusError(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}, format, args...)
}
