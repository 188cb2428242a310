package subresources

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"toolcall.dev/operator/internal/dispatch"
)

// writeTimeout is how long a client may take none of the bytes that wait for it.
const writeTimeout = time.Minute

// peer is the client's side of a request that has a slot. It counts what is carried, gives the client so much time for each write, up to
// the Flush that follows it, and waits for it no more when the slot has given way: what was answered by then ends cleanly if the client
// takes it. In between, when there is nothing to send, a client may wait for as long as it likes.
type peer struct {
	http.ResponseWriter
	body    io.ReadCloser
	control *http.ResponseController
	slot    *slot
	// status is that of the answer; 0 until it begins.
	status int

	mu        sync.Mutex
	isStopped bool
}

// admit serves a request once it has a slot. Its context ends, and its client is stopped, when the slot gives way or the server stops.
func (s *slots) admit(w http.ResponseWriter, r *http.Request, user, namespace string, serve func(*peer, *http.Request) error) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	c := &peer{ResponseWriter: w, body: r.Body, control: http.NewResponseController(w)}
	r = r.WithContext(ctx)
	if r.Body != nil {
		r.Body = c
	}
	var err error
	c.slot, err = s.enter(user, namespace, func() {
		cancel()
		c.stop()
	})
	if err != nil {
		return err
	}
	defer c.slot.leave()
	return c.slot.orGaveWay(serve(c, r))
}

var errGaveWay = errors.New("the request has given way to another one")

// endTime is how long what was written before a request had to give way may take.
const endTime = time.Second

func (c *peer) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isStopped = true
	_ = c.control.SetReadDeadline(time.Unix(1, 0))
	_ = c.control.SetWriteDeadline(time.Now().Add(endTime))
}

// SetReadDeadline is what http.ResponseController looks for.
func (c *peer) SetReadDeadline(t time.Time) error {
	return c.unlessStopped(func() error { return c.control.SetReadDeadline(t) })
}

// SetWriteDeadline is what http.ResponseController looks for.
func (c *peer) SetWriteDeadline(t time.Time) error {
	return c.unlessStopped(func() error { return c.control.SetWriteDeadline(t) })
}

func (c *peer) unlessStopped(do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isStopped {
		return errGaveWay
	}
	return do()
}

// WriteHeader implements http.ResponseWriter.
func (c *peer) WriteHeader(code int) {
	c.status = code
	c.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter. It writes frames of HTTP/2 that are whole records of TLS.
func (c *peer) Write(p []byte) (n int, err error) {
	// Not every writer can be given a time.
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); errors.Is(err, errGaveWay) {
		return 0, err
	}
	for frame := range slices.Chunk(p, dispatch.FrameBytes) {
		written, err := c.ResponseWriter.Write(frame)
		c.slot.moved.Add(int64(written))
		if n += written; err != nil {
			return n, err
		}
	}
	return n, nil
}

// FlushError is what http.ResponseController looks for.
func (c *peer) FlushError() error {
	err := c.control.Flush()
	_ = c.SetWriteDeadline(time.Time{})
	return err
}

// Read implements io.Reader.
func (c *peer) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	c.slot.moved.Add(int64(n))
	return n, err
}

// Close implements io.Closer.
func (c *peer) Close() error { return c.body.Close() }

// Unwrap is what http.ResponseController looks for.
func (c *peer) Unwrap() http.ResponseWriter { return c.ResponseWriter }
