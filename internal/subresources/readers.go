package subresources

import (
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of the requests for output that are served at the same time. The API server bounds requests that last long in no way.
const (
	maxReaders        = 4096
	maxReadersPerUser = 1024
)

// bufferSize is what one request keeps of a stream, while it has something to send.
const bufferSize = 32 << 10

// readers counts the requests for output.
type readers struct {
	mu      sync.Mutex
	total   int
	byUser  map[string]int
	buffers sync.Pool
}

func newReaders() *readers {
	return &readers{byUser: map[string]int{}, buffers: sync.Pool{New: func() any { return new([bufferSize]byte) }}}
}

// enter lets one more request of a user in. The caller calls leave when it has ended.
func (r *readers) enter(user string) (leave func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.total >= maxReaders || r.byUser[user] >= maxReadersPerUser {
		return nil, statusError(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			&metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}, "too much output is read at the same time: %d requests of %q, %d of all", r.byUser[user], user, r.total)
	}
	r.total++
	r.byUser[user]++
	return func() { r.leave(user) }, nil
}

func (r *readers) leave(user string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total--
	if r.byUser[user]--; r.byUser[user] == 0 {
		delete(r.byUser, user)
	}
}
