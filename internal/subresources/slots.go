package subresources

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/fair"
)

// headStart is how many bytes a request counts as having carried when it begins, so that one that has just begun isn't the slowest.
const headStart = 1 << 20

// slots bounds the requests that are served at the same time. When all are taken, a namespace that has fewer than another gets one
// of the other's: the slowest request of the namespace that has most gives way. Where no namespace has more, users who have few in many
// of them are treated alike.
type slots struct {
	what   string
	budget *fair.Budget[string]
	clock  clock.PassiveClock
}

// slot is what one request has of them, until it leaves.
type slot struct {
	of    *slots
	held  *fair.Holding[string]
	began time.Time
	// moved is how many bytes were carried.
	moved atomic.Int64
	// gaveWay says that another request has it now.
	gaveWay atomic.Bool
}

func newSlots(what string, most int, c clock.PassiveClock) *slots {
	return &slots{what: what, clock: c, budget: fair.NewBudget[string](fair.Limits{Total: most, Each: []int{most / 2, most / 4}})}
}

// enter lets one more request of a user for a namespace in, which stop ends when it has to give way; stop must not block. The caller
// calls leave when it has ended.
func (s *slots) enter(user, namespace string, stop func()) (*slot, error) {
	one := &slot{of: s, began: s.clock.Now()}
	evict := func() {
		one.gaveWay.Store(true)
		stop()
	}
	held, full := s.budget.Hold(fair.Holder{Evict: evict, Rate: one.rate}, fair.Place[string]{Keys: []string{namespace, user}})
	if full != nil {
		return nil, tooMany("too many %s at the same time: %d requests of %q, %d in the namespace, %d in total", s.what, full.Of[1], user, full.Of[0], full.Total)
	}
	one.held = held
	return one, nil
}

// rate is how many bytes a second were carried.
func (s *slot) rate() float64 {
	return float64(headStart+s.moved.Load()) / (1 + s.of.clock.Since(s.began).Seconds())
}

func (s *slot) leave() { s.held.Release() }

// orGaveWay is why a request failed: it had to give way, or else err.
func (s *slot) orGaveWay(err error) error {
	if err == nil || !s.gaveWay.Load() {
		return err
	}
	return tooMany("there were too many %s at the same time, and this one gave way to another: "+
		"it was the slowest of the namespace, or of the user, that had most. Try again", s.of.what)
}

func tooMany(format string, args ...any) error {
	return statusError(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}, format, args...)
}

// slottedConn is the client's side of a request that has a slot: it counts what is carried, and waits for the client no more when
// the slot has given way. What was answered by then ends cleanly if the client takes it.
type slottedConn struct {
	http.ResponseWriter
	body    io.ReadCloser
	control *http.ResponseController
	slot    *slot

	mu        sync.Mutex
	isStopped bool
}

var errGaveWay = errors.New("the request has given way to another one")

// endTime is how long what was written before a request had to give way may take.
const endTime = time.Second

func (c *slottedConn) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isStopped = true
	_ = c.control.SetReadDeadline(time.Unix(1, 0))
	_ = c.control.SetWriteDeadline(time.Now().Add(endTime))
}

// SetReadDeadline is what http.ResponseController looks for.
func (c *slottedConn) SetReadDeadline(t time.Time) error {
	return c.unlessStopped(func() error { return c.control.SetReadDeadline(t) })
}

// SetWriteDeadline is what http.ResponseController looks for.
func (c *slottedConn) SetWriteDeadline(t time.Time) error {
	return c.unlessStopped(func() error { return c.control.SetWriteDeadline(t) })
}

func (c *slottedConn) unlessStopped(do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isStopped {
		return errGaveWay
	}
	return do()
}

// Write implements http.ResponseWriter.
func (c *slottedConn) Write(p []byte) (int, error) {
	if err := c.unlessStopped(func() error { return nil }); err != nil {
		return 0, err
	}
	n, err := c.ResponseWriter.Write(p)
	c.slot.moved.Add(int64(n))
	return n, err
}

// Read implements io.Reader.
func (c *slottedConn) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	c.slot.moved.Add(int64(n))
	return n, err
}

// Close implements io.Closer.
func (c *slottedConn) Close() error { return c.body.Close() }

// Unwrap is what http.ResponseController looks for.
func (c *slottedConn) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// enterWith lets a request in. It returns the client's side of it, which stops when the slot gives way; cancel is called then too.
func (s *slots) enterWith(w http.ResponseWriter, r *http.Request, user, namespace string, cancel func()) (*slottedConn, error) {
	c := &slottedConn{ResponseWriter: w, body: r.Body, control: http.NewResponseController(w)}
	var err error
	c.slot, err = s.enter(user, namespace, func() {
		cancel()
		c.stop()
	})
	return c, err
}

// maxReaders bounds the requests for output that are served at the same time. The API server bounds requests that last long in no way.
// Who administers a namespace makes as many users as they like there. One that reads a stream of its own takes 96 KiB at most.
const maxReaders = 2560

// bufferSize is what one request keeps of a stream, while it has something to send.
const bufferSize = 32 << 10

// readers bounds the requests for output.
type readers struct {
	*slots
	buffers sync.Pool
}

func newReaders(c clock.PassiveClock) *readers {
	return &readers{slots: newSlots("readers of output", maxReaders, c), buffers: sync.Pool{New: func() any { return new([bufferSize]byte) }}}
}

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
