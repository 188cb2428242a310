package subresources

import (
	"context"
	"net/http"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/fair"
)

// slots bounds the requests that are served at the same time. When all are taken, a namespace that has fewer than another gets one
// of the other's: the newest request of the namespace that has most gives way. Where no namespace has more, users who have few in many
// of them are treated alike.
type slots struct {
	what   string
	budget *fair.Budget[string]
	// stopping ends when the server stops.
	stopping context.Context
}

// slot is what one request has of them, until it leaves.
type slot struct {
	of   *slots
	held *fair.Holding[string]
	// moved is how many bytes were carried.
	moved atomic.Int64
	// gaveWay says that another request has it now.
	gaveWay atomic.Bool
}

func newSlots(stopping context.Context, what string, most int) *slots {
	return &slots{stopping: stopping, what: what, budget: fair.NewBudget[string](fair.Limits{Total: most, Each: []int{most / 2, most / 4}})}
}

// enter lets one more request of a user for a namespace in, which stop ends when it has to give way; stop must not block. The caller
// calls leave when it has ended.
func (s *slots) enter(user, namespace string, stop func()) (*slot, error) {
	one := &slot{of: s}
	evict := func() {
		one.gaveWay.Store(true)
		stop()
	}
	held, full := s.budget.Hold(evict, fair.Place[string]{Keys: []string{namespace, user}})
	if full != nil {
		return nil, tooMany("too many %s at the same time: %d requests of %q, %d in the namespace, %d in total", s.what, full.Of[1], user, full.Of[0], full.Total)
	}
	one.held = held
	return one, nil
}

func (s *slot) leave() { s.held.Release() }

// orGaveWay is why a request failed: it had to give way, or else err.
func (s *slot) orGaveWay(err error) error {
	if err == nil || !s.gaveWay.Load() {
		return err
	}
	return tooMany("there were too many %s at the same time, and this one gave way to another: "+
		"it was the newest of the namespace, or of the user, that had most. Try again", s.of.what)
}

func tooMany(format string, args ...any) error {
	return statusError(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}, format, args...)
}

// Bounds of the requests that are served at the same time. The API server bounds requests that last long in no way.
const (
	// maxReaders is how many there are for output. Who administers a namespace makes as many users as they like there. One that reads a
	// stream of its own takes 96 KiB at most.
	maxReaders = 2560
	// maxTransfers is how many there are for files and input. Each takes up to a MiB of memory.
	maxTransfers           = 64
	maxTransfersPerSession = wire.MaxTransfers
)
