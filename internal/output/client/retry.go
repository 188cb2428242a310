package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"
)

// How long a client waits before it asks again. An answer's Retry-After counts instead.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Backoff says when to ask again while nothing comes.
type Backoff struct {
	// Patience is how long nothing may come until an error is final; 0 is as long as the context allows.
	Patience time.Duration
	pause    time.Duration
	since    time.Time
}

// Progress says that something came.
func (b *Backoff) Progress() { b.pause, b.since = 0, time.Time{} }

// Wait waits before the next try after an error that isn't final. The error is why there is no next one.
func (b *Backoff) Wait(ctx context.Context, err error) error {
	if b.since.IsZero() {
		b.since = time.Now()
	}
	b.pause = min(max(2*b.pause, firstPause), lastPause)
	// Clients that lost the same server don't come back all at once.
	pause := b.pause/2 + rand.N(b.pause/2)
	var answer *Error
	if errors.As(err, &answer) {
		if asked, ok := retryAfter(answer.Header); ok {
			pause = asked
		}
	}
	if b.Patience > 0 && time.Since(b.since)+pause > b.Patience {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause):
		return nil
	}
}

// IsPassing reports whether asking again can help: the connection broke, or the server can't answer for the moment.
func IsPassing(err error) bool {
	if errors.As(err, new(*protocolError)) {
		return false
	}
	switch code(err) {
	case 0, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}
