package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"toolcall.dev/operator/internal/subresources"
)

// retryAfter is when a follower asks again where nobody says when, and shortly when the answer just ended.
const (
	retryAfter = time.Second
	shortly    = 100 * time.Millisecond
)

// Follower reads a stream from its start to its end, whatever happens in between.
type Follower struct {
	Client *Client
	Log    Log
	// To takes the bytes. When it fails, following does.
	To io.Writer

	at, breaks atomic.Int64
	// SHA256 is what the server says at the end.
	SHA256 string
}

// At is how many bytes have come.
func (f *Follower) At() int64 { return f.at.Load() }

// Breaks is how often an answer ended, or a request failed, before the stream's end.
func (f *Follower) Breaks() int64 { return f.breaks.Load() }

// errAgain says when to ask again.
type errAgain struct{ after time.Duration }

func (e errAgain) Error() string { return "ask again in " + e.after.String() }

// Run returns at the end of the stream, or at an answer after which asking again doesn't help.
func (f *Follower) Run(ctx context.Context) error {
	for {
		err := f.once(ctx)
		var again errAgain
		if !errors.As(err, &again) {
			return err
		}
		f.breaks.Add(1)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s of call %s, at offset %d after %d breaks: %w", f.Log.Stream, f.Log.Name, f.At(), f.Breaks(), ctx.Err())
		case <-time.After(again.after):
		}
	}
}

// once sends one request, and passes on what comes.
func (f *Follower) once(ctx context.Context) error {
	query := url.Values{"follow": {"true"}, "offset": {strconv.FormatInt(f.At(), 10)}}
	response, err := f.Client.Get(ctx, f.Log, query)
	if err != nil {
		return errAgain{shortly}
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		return f.take(response)
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
			return errAgain{time.Duration(seconds) * time.Second}
		}
		return errAgain{retryAfter}
	default:
		said, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return fmt.Errorf("%s of call %s, at offset %d: %s: %s", f.Log.Stream, f.Log.Name, f.At(), response.Status, said)
	}
}

func (f *Follower) take(response *http.Response) error {
	header := response.Header
	if at := strconv.FormatInt(f.At(), 10); header.Get(subresources.HeaderOffset) != at {
		return fmt.Errorf("asked for offset %s, the answer begins at %q", at, header.Get(subresources.HeaderOffset))
	}
	if missing := header.Get(subresources.HeaderMissing); missing != "" {
		return fmt.Errorf("%s of call %s: the bytes %s weren't kept", f.Log.Stream, f.Log.Name, missing)
	}
	if err := f.copy(response.Body); err != nil {
		return err
	}
	total, err := strconv.ParseInt(header.Get(subresources.HeaderBytes), 10, 64)
	switch {
	case err != nil:
		return fmt.Errorf("the answer doesn't say how many bytes there are: %w", err)
	case header.Get(subresources.HeaderComplete) != "true" || f.At() < total:
		return errAgain{shortly}
	case f.At() > total:
		return fmt.Errorf("%d bytes came of a stream of %d", f.At(), total)
	}
	f.SHA256 = header.Get(subresources.HeaderSHA256)
	return nil
}

// copy ends without an error where the body does, whether or not that was clean.
func (f *Follower) copy(body io.Reader) error {
	buffer := make([]byte, 32<<10)
	for {
		n, readErr := body.Read(buffer)
		if n > 0 {
			if _, err := f.To.Write(buffer[:n]); err != nil {
				return fmt.Errorf("%s of call %s: %w", f.Log.Stream, f.Log.Name, err)
			}
			f.at.Add(int64(n))
		}
		if readErr != nil {
			return nil
		}
	}
}
