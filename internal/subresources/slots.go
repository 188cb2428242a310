package subresources

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// headStart is how many bytes a request counts as having carried when it begins, so that one that has just begun isn't the slowest.
const headStart = 1 << 20

// slots bounds the requests that are served at the same time. When all are taken, a namespace that has fewer than another gets one
// of the other's: the slowest request of the namespace that has most gives way. Where no namespace has more, users who have few in many
// of them are treated alike.
type slots struct {
	what                              string
	most, mostOfNamespace, mostOfUser int
	clock                             clock.PassiveClock

	mu                  sync.Mutex
	total               int
	byUser, byNamespace holders
}

// holders are who holds slots, and which.
type holders map[string]map[*slot]bool

func (h holders) add(name string, one *slot) {
	if h[name] == nil {
		h[name] = map[*slot]bool{}
	}
	h[name][one] = true
}

func (h holders) remove(name string, one *slot) {
	if delete(h[name], one); len(h[name]) == 0 {
		delete(h, name)
	}
}

// slot is what one request has of them, until it leaves.
type slot struct {
	of              *slots
	user, namespace string
	began           time.Time
	// moved is how many bytes were carried.
	moved atomic.Int64
	// stop ends the request. It must not block.
	stop func()
	// gaveWay says that another request has it now.
	gaveWay atomic.Bool
}

func newSlots(what string, most int, c clock.PassiveClock) *slots {
	return &slots{
		what: what, most: most, mostOfNamespace: most / 2, mostOfUser: most / 4, clock: c,
		byUser: holders{}, byNamespace: holders{},
	}
}

// enter lets one more request of a user for a namespace in, which stop ends when it has to give way. The caller calls leave when
// it has ended.
func (s *slots) enter(user, namespace string, stop func()) (*slot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, ofUser := len(s.byNamespace[namespace]), len(s.byUser[user])
	isFull := s.total >= s.most
	var slowest *slot
	if isFull {
		slowest = cmp.Or(s.byNamespace.slowestOfLargest(own), s.byUser.slowestOfLargest(ofUser))
	}
	if ofUser >= s.mostOfUser || own >= s.mostOfNamespace || isFull && slowest == nil {
		return nil, tooMany("too many %s at the same time: %d requests of %q, %d in the namespace, %d in total", s.what, ofUser, user, own, s.total)
	}
	if slowest != nil {
		s.remove(slowest)
		slowest.gaveWay.Store(true)
		slowest.stop()
	}
	one := &slot{of: s, user: user, namespace: namespace, began: s.clock.Now(), stop: stop}
	s.byNamespace.add(namespace, one)
	s.byUser.add(user, one)
	s.total++
	return one, nil
}

// slowestOfLargest is the slowest request of the holder that has most; nil when that hasn't more than a holder would have then that
// has so many now. It needs the lock.
func (h holders) slowestOfLargest(own int) (slowest *slot) {
	var largest map[*slot]bool
	for _, held := range h {
		if len(held) > len(largest) {
			largest = held
		}
	}
	if len(largest) <= own+1 {
		return nil
	}
	for one := range maps.Keys(largest) {
		if slowest == nil || one.rate() < slowest.rate() {
			slowest = one
		}
	}
	return slowest
}

// rate is how many bytes a second were carried.
func (s *slot) rate() float64 {
	return float64(headStart+s.moved.Load()) / (1 + s.of.clock.Since(s.began).Seconds())
}

func (s *slot) leave() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.remove(s)
}

// remove needs the lock.
func (s *slots) remove(one *slot) {
	if !s.byNamespace[one.namespace][one] {
		return
	}
	s.byNamespace.remove(one.namespace, one)
	s.byUser.remove(one.user, one)
	s.total--
}

// orGaveWay is why a request failed: it had to give way, or else err.
func (s *slot) orGaveWay(err error) error {
	if err == nil || !s.gaveWay.Load() {
		return err
	}
	return tooMany("there were too many %s at the same time, and this one gave way to another: "+
		"it was the slowest of the namespace, or of the user, that had most. Try again", s.of.what)
}

func decrease[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
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
