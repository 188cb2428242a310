// Package apiclock tells the API server's time.
//
// The times in objects are the API server's, and some of them were written by another replica of the operator on
// another machine. A wait that is measured between such a time and the own wall clock goes wrong by as much as the
// two clocks differ: with a clock that is ahead everything seems to be late at once, with one that is behind
// nothing ever is. This clock takes how much they differ from the Date header of every answer of the API server,
// and goes on by the monotonic clock in between, so that a step of the own wall clock changes nothing either.
//
// The header says whole seconds. As long as the two clocks may agree within that, no difference is assumed.
// Before the first answer it is the own wall clock. It must not be used for deadlines of connections, nor for
// certificates.
package apiclock

import (
	"net/http"
	"sync"
	"time"
)

// Clock is a clock.PassiveClock. Make one with New.
type Clock struct {
	now   func() time.Time
	start time.Time

	mu sync.Mutex
	// offset is how much the API server is ahead.
	offset time.Duration
}

// New makes a clock from one whose readings are monotonic, such as time.Now.
func New(now func() time.Time) *Clock { return &Clock{now: now, start: now()} }

// Now is the API server's time, as well as it is known.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own(c.now()).Add(c.offset)
}

// Since is the time that has passed since t, which is of this clock or of the API server.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// own is a reading on the wall clock that there was at the start.
func (c *Clock) own(reading time.Time) time.Time {
	// Without the wall clock's part of the reading, which may have been set meanwhile.
	return c.start.Round(0).Add(reading.Sub(c.start))
}

// granularity of the Date header.
const granularity = time.Second

// observe learns from one answer: between sent and received the server's clock showed some time from date on, and
// less than a second later. The offset moves as little as that demands, so that clocks that agree stay at none.
func (c *Clock) observe(sent, received, date time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	least := date.Sub(c.own(received))
	most := date.Add(granularity).Sub(c.own(sent))
	c.offset = min(max(c.offset, least), most)
}

// Wrap is a transport.WrapperFunc that learns from every answer.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper {
	return &transport{clock: c, next: next}
}

type transport struct {
	clock *Clock
	next  http.RoundTripper
}

// RoundTrip passes the request on.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	sent := t.clock.now()
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return response, err
	}
	if date, wrong := http.ParseTime(response.Header.Get("Date")); wrong == nil {
		t.clock.observe(sent, t.clock.now(), date)
	}
	return response, nil
}

// WrappedRoundTripper lets client-go find the connection pool underneath.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
