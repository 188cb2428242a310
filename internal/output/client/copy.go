package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/output"
)

// Query says what is read of a call.
type Query struct {
	Namespace, Name string
	// UID is that of the call that is meant; empty for whichever there is.
	UID    types.UID
	Stream output.Stream
	// Artifact is the path of an artifact that is read instead of a stream.
	Artifact string
	// SHA256 is the hash that all bytes must have, if it is known: of what the API says too.
	SHA256 string
	// Offset is that of the first byte, Limit how many bytes are wanted; 0 for all.
	Offset, Limit int64
	// Follow goes on until the stream is complete. Without it, the end is that of the stream at the first answer.
	Follow bool
	// Patience is how long nothing may come, while the API can't be reached, until that is an error; 0 is as long as the context
	// allows.
	Patience time.Duration
}

// Sink receives what is read, in order, from one goroutine. Functions except Write may be nil.
type Sink struct {
	Write func(p []byte) error
	// Missing receives a part that wasn't kept: from start up to, not including, end. Write goes on at end.
	Missing func(start, end int64)
	// Retrying receives why nothing comes, once in each interruption that an error begins.
	Retrying func(err error)
}

// End says how far a copy came.
type End struct {
	// Offset is that of the next byte.
	Offset int64
	// Complete says that it is the end of the stream.
	Complete bool
	// Verified says that all bytes were read and have the hash that the API says.
	Verified bool
}

// ErrContent says that the bytes that came aren't those that the process wrote.
var ErrContent = errors.New("the bytes that were read don't have the hash that the API says")

// ErrNotServed says that the cluster has no aggregated API for output.
var ErrNotServed = errors.New("the cluster doesn't serve the API " + group + ": the operator was installed without it, or its version is older")

// Copy reads a stream and passes it on until its end, the limit, an error that asking again doesn't help against, or the end of
// the context.
func (c *Client) Copy(ctx context.Context, q Query, to Sink) (End, error) {
	r := &reading{client: c, query: q, to: to, at: q.Offset, total: unknown, backoff: Backoff{Patience: q.Patience}}
	if q.Offset == 0 && q.Limit == 0 {
		r.hash = sha256.New()
	}
	for {
		done, err := r.request(ctx)
		switch {
		case r.refused != nil:
			return r.end(), r.refused
		case ctx.Err() != nil:
			return r.end(), ctx.Err()
		case err != nil && !IsPassing(err):
			return r.end(), explain(err)
		case done:
			r.reportMissing()
			err = r.verify()
			return r.end(), err
		case r.progressed && err == nil:
			r.progressed = false
			continue
		case err == nil:
			err = errEarlyEnd
		default:
			r.reportRetry(err)
		}
		r.progressed = false
		if err := r.backoff.Wait(ctx, err); err != nil {
			return r.end(), err
		}
	}
}

const unknown = -1

// errEarlyEnd says that an answer ended, as it does when the server stops, and brought nothing.
var errEarlyEnd = errors.New("the API ends its answers before the stream is complete")

// reading is a copy under way.
type reading struct {
	client  *Client
	query   Query
	to      Sink
	backoff Backoff
	// at is the offset of the next byte. total is where a copy that doesn't follow ends: what there was at the first answer.
	at, total int64
	// hash is that of all bytes; nil once that can't be compared.
	hash hash.Hash
	// sum is the hash that the API says; complete that at is the end of the stream.
	sum      string
	complete bool
	verified bool
	// refused is why the sink takes no more.
	refused error
	// missing is a part that wasn't kept and isn't reported yet.
	missing output.Range
	// progressed says that the last request brought something, reported that Retrying knows of this interruption.
	progressed, reported bool
}

func (r *reading) end() End { return End{Offset: r.at, Complete: r.complete, Verified: r.verified} }

// request sends one request and passes on what it brings. done says that there is no more to come.
func (r *reading) request(ctx context.Context) (done bool, err error) {
	response, err := r.client.Do(ctx, &Request{
		Method: http.MethodGet, Namespace: r.query.Namespace, Resource: "toolcalls", Name: r.query.Name, Subresource: "log", Query: r.parameters(),
	})
	if next, ok := nextOffset(err); ok && next > r.at {
		return r.skip(next), nil
	}
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	info, err := infoOf(response.Header)
	if err == nil && info.offset != r.at {
		err = fmt.Errorf("the answer begins at offset %d, not at %d", info.offset, r.at)
	}
	if err != nil {
		return false, &protocolError{err}
	}
	r.query.UID = info.uid
	if r.total == unknown {
		r.total = info.bytes
	}
	if info.complete {
		r.sum = info.sum
	}
	err = r.copy(response.Body)
	r.complete = info.complete && r.at >= info.bytes
	return r.complete || r.left() == 0 || !r.query.Follow && r.at >= r.total, err
}

// left is how many bytes are wanted, -1 for all.
func (r *reading) left() int64 {
	if r.query.Limit == 0 {
		return unknown
	}
	return max(0, r.query.Offset+r.query.Limit-r.at)
}

func (r *reading) parameters() url.Values {
	values := url.Values{}
	if r.query.Artifact != "" {
		values.Set("artifact", r.query.Artifact)
	} else {
		values.Set("stream", string(r.query.Stream))
	}
	if r.at > 0 {
		values.Set("offset", strconv.FormatInt(r.at, 10))
	}
	if left := r.left(); left != unknown {
		values.Set("limit", strconv.FormatInt(left, 10))
	}
	if r.query.Follow {
		values.Set("follow", "true")
	}
	if r.query.UID != "" {
		values.Set("uid", string(r.query.UID))
	}
	return values
}

const bufferSize = 32 << 10

// copy passes a body on. A body that ends early is an error; what came before it counts.
func (r *reading) copy(body io.Reader) error {
	buffer := make([]byte, bufferSize)
	for {
		n, err := body.Read(buffer)
		if left := r.left(); left != unknown && int64(n) > left {
			return &protocolError{fmt.Errorf("the answer has more bytes than the %d that were asked for", r.query.Limit)}
		}
		if n > 0 {
			if err := r.pass(buffer[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *reading) pass(p []byte) error {
	r.reportMissing()
	r.backoff.Progress()
	r.progressed, r.reported = true, false
	if r.refused = r.to.Write(p); r.refused != nil {
		return r.refused
	}
	if r.hash != nil {
		r.hash.Write(p)
	}
	r.at += int64(len(p))
	return nil
}

// skip goes on behind a part that wasn't kept. done says that the wanted part ends in it.
func (r *reading) skip(next int64) (done bool) {
	if left := r.left(); left != unknown {
		next = min(next, r.at+left)
	}
	if r.missing.Start == r.missing.End {
		r.missing.Start = r.at
	}
	r.missing.End = next
	r.at, r.hash, r.progressed = next, nil, true
	return r.left() == 0 || !r.query.Follow && r.total != unknown && r.at >= r.total
}

// reportMissing tells of a part that wasn't kept as one, however many answers it took to get past it.
func (r *reading) reportMissing() {
	if r.missing.Start < r.missing.End && r.to.Missing != nil {
		r.to.Missing(r.missing.Start, r.missing.End)
	}
	r.missing = output.Range{}
}

func (r *reading) reportRetry(err error) {
	if !r.reported && r.to.Retrying != nil {
		r.to.Retrying(err)
	}
	r.reported = true
}

// verify compares the hash of what was read with what the API says, where both are of everything.
func (r *reading) verify() error {
	if r.hash == nil || !r.complete {
		return nil
	}
	got := hex.EncodeToString(r.hash.Sum(nil))
	for _, want := range []string{r.sum, r.query.SHA256} {
		switch want {
		case "":
		case got:
			r.verified = true
		default:
			return fmt.Errorf("%w: sha256 %s, not %s", ErrContent, got, want)
		}
	}
	return nil
}

// explain says so where an answer comes from an API server that doesn't know the path.
func explain(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return err
	}
	details := status.Status().Details
	if details == nil || details.Kind == "" || details.Group == group && details.Kind == "toolcalls/log" {
		return fmt.Errorf("%w: %w", ErrNotServed, err)
	}
	return err
}

// nextOffset is where the stream goes on behind the part that wasn't kept, if that is what an error says.
func nextOffset(err error) (int64, bool) {
	cause, ok := apierrors.StatusCause(err, causeNextOffset)
	if !ok || code(err) != http.StatusGone {
		return 0, false
	}
	next, err := strconv.ParseInt(cause.Message, 10, 64)
	return next, err == nil
}

// info is what the headers of an answer say.
type info struct {
	uid           types.UID
	offset, bytes int64
	complete      bool
	sum           string
}

func infoOf(h http.Header) (i info, err error) {
	i = info{uid: types.UID(h.Get(headerUID)), complete: h.Get(headerComplete) == "true", sum: h.Get(headerSHA256)}
	for name, into := range map[string]*int64{headerOffset: &i.offset, headerBytes: &i.bytes} {
		n, err := strconv.ParseUint(h.Get(name), 10, 63)
		if err != nil {
			return i, fmt.Errorf("the answer has no valid header %s", name)
		}
		*into = int64(n)
	}
	return i, nil
}
