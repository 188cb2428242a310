package subresources

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

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
// the slot has given way. What was answered by then ends cleanly if nothing of it waits.
type slottedConn struct {
	http.ResponseWriter
	body    io.ReadCloser
	control *http.ResponseController
	slot    *slot

	mu        sync.Mutex
	isWriting bool
	isStopped bool
}

var errGaveWay = errors.New("the request has given way to another one")

// past is a time that is over.
var past = time.Unix(1, 0)

func (c *slottedConn) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isStopped = true
	_ = c.control.SetReadDeadline(past)
	if c.isWriting {
		_ = c.control.SetWriteDeadline(past)
	}
}

// SetReadDeadline is what http.ResponseController looks for.
func (c *slottedConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isStopped {
		return errGaveWay
	}
	return c.control.SetReadDeadline(t)
}

// SetWriteDeadline is what http.ResponseController looks for.
func (c *slottedConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isStopped {
		return errGaveWay
	}
	return c.control.SetWriteDeadline(t)
}

// Write implements http.ResponseWriter.
func (c *slottedConn) Write(p []byte) (n int, err error) {
	err = c.whileWriting(func() error {
		n, err = c.ResponseWriter.Write(p)
		return err
	})
	c.slot.moved.Add(int64(n))
	return n, err
}

// FlushError is what http.ResponseController looks for.
func (c *slottedConn) FlushError() error { return c.whileWriting(c.control.Flush) }

func (c *slottedConn) whileWriting(write func() error) error {
	if !c.setWriting(true) {
		return errGaveWay
	}
	defer c.setWriting(false)
	return write()
}

// setWriting is false when nothing may be written any more.
func (c *slottedConn) setWriting(is bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isWriting = is
	return !c.isStopped
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
