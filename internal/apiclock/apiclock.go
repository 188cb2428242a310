// Package apiclock tells the API server's time.
//
// The times in objects are the API server's, or those of another replica of the operator on another machine. A wait
// that is measured between such a time and the own wall clock goes wrong by as much as the two clocks differ: with a
// clock that is ahead everything seems late at once, with one that is behind nothing ever is. This clock works out the
// difference from the Date header of the API server's answers. In between it follows the monotonic clock, so a step of
// the own wall clock changes nothing either.
//
// One API server may be wrong. The clock therefore follows the majority of a window of observations: 255 of them, at
// least a second apart. The header has whole seconds, so an observation bounds the difference from both sides. The
// difference moves only as far as the medians of these bounds demand; clocks that agree within a second are not changed.
//
// What it survives, and what it doesn't:
//   - wrong answers that are fewer than half of the window, in any order: no effect;
//   - a connection that leads to a wrong API server for up to two minutes: no effect;
//   - a connection that leads there for longer: the clock follows that server, two to five minutes after the change.
//     Nothing in the answers tells this from a cluster whose time was set. Skew shows it from the first wrong answer on;
//   - a step of all API servers: followed, with the same delay;
//   - a wrong answer at the start: the own wall clock counts as one observation until the window is full. Two answers
//     that agree outvote it; of a wrong answer, a right one and a right wall clock the right ones win. An operator that
//     starts on a connection to a wrong API server takes that server's time. In the first minutes the window has few
//     observations, so that half of them are reached sooner.
//
// It must not be used for deadlines of connections, nor for certificates.
package apiclock

import (
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// Clock is a clock.PassiveClock. Make one with New.
type Clock struct {
	now   func() time.Time
	start time.Time
	log   logr.Logger

	mu sync.Mutex
	// offset is how much the API server is ahead of the own wall clock at the start.
	offset time.Duration
	window window
	// next is when the next observation may be made, as a time since start.
	next time.Duration
	// reported says that the log has the skew that there is.
	reported bool
}

// New makes a clock from one whose readings are monotonic, such as time.Now. It logs a skew of the clocks once.
func New(now func() time.Time, log logr.Logger) *Clock {
	return &Clock{now: now, start: now(), log: log}
}

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

// observe takes one answer into account: between sent and received the server's clock showed some time from date on,
// and less than a second later.
func (c *Clock) observe(sent, received, date time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := received.Sub(c.start)
	if at < c.next {
		return
	}
	c.window.add(bounds{least: date.Sub(c.own(received)), most: date.Add(granularity).Sub(c.own(sent))})
	c.next = at + c.window.spacing()
	c.offset = c.window.majority().nearest(c.offset)
	c.report()
}

// skewLimit is the skew from which on it is logged.
const skewLimit = 5 * time.Second

// Skew is how much clocks differ. Differences of less than a second may show as none.
type Skew struct {
	// Operator is how much the API servers are ahead of the operator's wall clock; negative when they are behind.
	Operator time.Duration
	// APIServers is by how much the answers of the last minutes contradict each other.
	APIServers time.Duration
}

// report logs a skew when it begins. It needs the lock.
func (c *Clock) report() {
	skew := c.skew()
	// It ends at half of the limit, so that a skew around the limit isn't logged again and again.
	switch {
	case skew.above(skewLimit) && !c.reported:
		c.reported = true
		c.log.Info("Clocks differ", "apiServersAheadSeconds", skew.Operator.Seconds(), "apiServersSpreadSeconds", skew.APIServers.Seconds())
	case !skew.above(skewLimit / 2):
		c.reported = false
	}
}

func (s Skew) above(limit time.Duration) bool {
	return s.Operator.Abs() > limit || s.APIServers > limit
}

// Skew is how much clocks differ now.
func (c *Clock) Skew() Skew {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.skew()
}

// skew needs the lock.
func (c *Clock) skew() Skew {
	reading := c.now()
	return Skew{
		Operator:   c.own(reading).Add(c.offset).Sub(reading.Round(0)),
		APIServers: c.window.spread(),
	}
}

// Wrap is a transport.WrapperFunc that observes every answer.
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
