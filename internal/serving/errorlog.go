package serving

import (
	"bytes"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
)

// errorLogInterval bounds how often errors of connections are logged: anybody who can connect could fill the log otherwise.
const errorLogInterval = 10 * time.Second

// errorLog logs what the HTTP servers say, a line of each kind now and then.
type errorLog struct {
	log *slog.Logger
	// Handshakes fail by the clients' doing, and don't hide the rest.
	handshakes, others rate.Sometimes
}

func newErrorLog(log *slog.Logger) *errorLog {
	return &errorLog{
		log:        log,
		handshakes: rate.Sometimes{First: 1, Interval: errorLogInterval},
		others:     rate.Sometimes{First: 1, Interval: errorLogInterval},
	}
}

func (e *errorLog) Write(p []byte) (int, error) {
	limit := &e.others
	if bytes.Contains(p, []byte("TLS handshake error")) {
		limit = &e.handshakes
	}
	limit.Do(func() {
		e.log.Warn("serving failed; errors that follow soon aren't logged", "error", string(bytes.TrimSpace(p)))
	})
	return len(p), nil
}
