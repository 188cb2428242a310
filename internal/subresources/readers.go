package subresources

import (
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of the requests for output that are served at the same time. The API server bounds requests that last long in no way.
// Who administers a namespace makes as many users as they like there. One that reads a stream of its own takes 96 KiB at most.
const (
	maxReaders             = 2560
	maxReadersPerNamespace = maxReaders / 2
	maxReadersPerUser      = maxReaders / 4
)

// bufferSize is what one request keeps of a stream, while it has something to send.
const bufferSize = 32 << 10

// readers counts the requests for output.
type readers struct {
	mu          sync.Mutex
	total       int
	byUser      map[string]int
	byNamespace map[string]int
	buffers     sync.Pool
}

func newReaders() *readers {
	return &readers{
		byUser: map[string]int{}, byNamespace: map[string]int{}, buffers: sync.Pool{New: func() any { return new([bufferSize]byte) }},
	}
}

// enter lets one more request of a user for output of a namespace in. The caller calls leave when it has ended.
func (r *readers) enter(user, namespace string) (leave func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.total >= maxReaders || r.byUser[user] >= maxReadersPerUser || r.byNamespace[namespace] >= maxReadersPerNamespace {
		return nil, statusError(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			&metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds},
			"too much output is read at the same time: %d requests of %q, %d in the namespace, %d of all",
			r.byUser[user], user, r.byNamespace[namespace], r.total)
	}
	r.total++
	r.byUser[user]++
	r.byNamespace[namespace]++
	return func() { r.leave(user, namespace) }, nil
}

func (r *readers) leave(user, namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total--
	decrease(r.byUser, user)
	decrease(r.byNamespace, namespace)
}

func decrease[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}
