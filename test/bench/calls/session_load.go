package calls

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/figures"
)

const (
	// floorClients is how many calls of the floor are on their way at the same time, where it is more than one.
	floorClients = 32
	// keptCalls is how many finished calls of a session the operator leaves; what ends beyond that, it deletes.
	keptCalls = 200
)

// loadResult is what clients came to that each had one call on its way at a time.
type loadResult struct {
	Clients int             `json:"clients"`
	Seconds float64         `json:"seconds"`
	Rate    float64         `json:"callsPerSecond"`
	Latency figures.Summary `json:"latency"`
	// Deleted is how many finished calls the operator deleted in that time.
	Deleted int `json:"deleted"`
}

// ending is the end of one call.
type ending struct {
	at      time.Time
	seconds float64
}

// loops are clients that each create a call, see its end, and create the next one.
type loops struct {
	tracker *cluster.Tracker
	// clients are the beginnings of their calls' names.
	clients []string

	mu    sync.Mutex
	ended []ending
	// each counts what has ended by client.
	each map[string]int
}

// run has the clients work until during returns.
func (l *loops) run(ctx context.Context, during func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	over := make(chan struct{})
	for _, client := range l.clients {
		group.Go(func() error { return l.repeat(ctx, client, over) })
	}
	group.Go(func() error {
		defer close(over)
		return during(ctx)
	})
	return group.Wait()
}

func (l *loops) repeat(ctx context.Context, client string, over <-chan struct{}) error {
	for i := 0; ; i++ {
		select {
		case <-over:
			return nil
		default:
		}
		s, err := l.tracker.Measure(ctx, fmt.Sprintf("%s-%06d", client, i))
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.ended = append(l.ended, ending{s.Ended, s.Seconds()})
		if l.each == nil {
			l.each = map[string]int{}
		}
		l.each[client]++
		l.mu.Unlock()
	}
}

// least is how many calls of a client have ended, of the one with the fewest; all is how many in all.
func (l *loops) least() (least, all int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	least = len(l.ended)
	for _, client := range l.clients {
		least = min(least, l.each[client])
	}
	return least, len(l.ended)
}

// between are the calls that ended in that time.
func (l *loops) between(from, to time.Time) *loadResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	var seconds []float64
	for _, e := range l.ended {
		if !e.at.Before(from) && e.at.Before(to) {
			seconds = append(seconds, e.seconds)
		}
	}
	took := to.Sub(from).Seconds()
	return &loadResult{Clients: len(l.clients), Seconds: took, Rate: float64(len(seconds)) / took, Latency: figures.Summarize(seconds)}
}

// measureSustained has clients of many sessions work as fast as they can, and those of the floor before and after.
func (b *sessionBench) measureSustained(ctx context.Context) error {
	before, err := b.loadFloor(ctx, "before")
	if err != nil {
		return err
	}
	b.say("sessions: the floor takes %.0f calls/s", before.Rate)
	if err := b.loadSessions(ctx); err != nil {
		return err
	}
	after, err := b.loadFloor(ctx, "after")
	if err != nil {
		return err
	}
	b.say("sessions: %.0f calls/s in %d sessions; the floor takes %.0f", b.report.Sustained.Rate, b.session.sessions, after.Rate)
	b.report.FloorBefore, b.report.FloorAfter = before, after
	return nil
}

// loadFloor measures the floor for half as long as the sessions are measured.
func (b *sessionBench) loadFloor(ctx context.Context, name string) (result *loadResult, err error) {
	stop, err := b.startFloor(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if failure := stop(); err == nil {
			err = failure
		}
	}()
	l := &loops{tracker: b.floor.Tracker}
	for i := range floorClients {
		l.clients = append(l.clients, fmt.Sprintf("%s-%02d", name, i))
	}
	err = l.run(ctx, func(ctx context.Context) error {
		// The first calls find the API server's caches empty.
		if err := cluster.Pause(ctx, 2*time.Second); err != nil {
			return err
		}
		from := time.Now()
		err := cluster.Pause(ctx, time.Duration(b.session.seconds/2*float64(time.Second)))
		result = l.between(from, time.Now())
		return err
	})
	if err != nil {
		return nil, err
	}
	return result, b.clearFloor(ctx)
}

func (b *sessionBench) loadSessions(ctx context.Context) error {
	room, err := b.newRoom(ctx, sessionsSustained)
	if err != nil {
		return err
	}
	names := make([]string, b.session.sessions)
	for i := range names {
		names[i] = fmt.Sprintf("s%02d", i)
	}
	sessions, err := b.openSessions(ctx, room.Namespace, sessionSpec(b.session.loops), names...)
	if err != nil {
		return err
	}
	t, err := cluster.Track(ctx, b.client, callsOf(room.Namespace, sessions), nil)
	if err != nil {
		return err
	}
	defer t.Stop()
	l := &loops{tracker: t}
	for _, name := range names {
		for i := range b.session.loops {
			l.clients = append(l.clients, fmt.Sprintf("%s-%02d", name, i))
		}
	}
	err = l.run(ctx, func(ctx context.Context) error { return b.window(ctx, room, l) })
	if err != nil {
		return err
	}
	return b.closeSessions(ctx, room, sessions)
}

// window measures once the operator deletes finished calls as fast as others end.
func (b *sessionBench) window(ctx context.Context, room *fixture, l *loops) error {
	began, full := time.Now(), keptCalls/b.session.loops+1
	for least, _ := l.least(); least < full && time.Since(began).Seconds() < b.session.warmUp; least, _ = l.least() {
		if err := cluster.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	kept, err := room.countCalls(ctx)
	if err != nil {
		return err
	}
	_, before := l.least()
	from := time.Now()
	if err := cluster.Pause(ctx, time.Duration(b.session.seconds*float64(time.Second))); err != nil {
		return err
	}
	result := l.between(from, time.Now())
	_, after := l.least()
	keptAfter, err := room.countCalls(ctx)
	result.Deleted = max(0, after-before-(keptAfter-kept))
	b.report.Sustained = result
	return err
}

func (f *fixture) countCalls(ctx context.Context) (int, error) {
	return f.count(ctx, v1alpha1.GroupVersion.String(), "ToolCallList")
}
