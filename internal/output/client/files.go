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
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// File names a file or a directory in a session.
type File struct {
	Namespace, Session string
	// Path is absolute, or relative to the session's working directory.
	Path string
	// Archive means a directory, as a tar archive of what is in it.
	Archive bool
}

// Progress receives how many bytes were carried, and of how many; total is -1 when that isn't known. It may be nil.
type Progress func(done, total int64)

func (p Progress) report(done, total int64) {
	if p != nil {
		p(done, total)
	}
}

const (
	// filePatience is how long the API may be away during a transfer.
	filePatience = 30 * time.Second
	// A policy can bound how much of a file one answer has. Then it is read in parts, the largest that it allows between these.
	maxPart, minPart = 16 << 20, 64 << 10
)

// ErrChanged says that a file changed while it was read.
var ErrChanged = errors.New("the file changed while it was read: read it again")

func (f *File) request(method string) *Request {
	values := url.Values{"path": {f.Path}}
	if f.Archive {
		values.Set("archive", "tar")
	}
	return &Request{
		Method: method, Namespace: f.Namespace, Resource: "toolsessions", Name: f.Session, Subresource: "proxy/files",
		Query: values, Header: http.Header{},
	}
}

// Download passes the content of a file on, in order. Without an error it is the whole content, with the hash that the API says.
func (c *Client) Download(ctx context.Context, f File, to io.Writer, progress Progress) error {
	d := &download{client: c, file: f, to: to, progress: progress, size: unknown, hash: sha256.New(), backoff: Backoff{Patience: filePatience}}
	for d.size == unknown || d.at < d.size {
		err := d.request(ctx)
		switch {
		case err == nil:
		case d.refused != nil:
			return d.refused
		case ctx.Err() != nil:
			return ctx.Err()
		case code(err) == http.StatusPreconditionFailed && d.tag != "":
			return ErrChanged
		case code(err) == http.StatusRequestEntityTooLarge && d.part != minPart:
			d.part = nextPart(d.part)
		case !IsPassing(err):
			return err
		default:
			if err := d.backoff.Wait(ctx, err); err != nil {
				return err
			}
		}
	}
	if got := tagOf(d.hash); got != d.tag {
		return fmt.Errorf("%w: sha256 %s, not %s", ErrContent, got, d.tag)
	}
	return nil
}

// code is the code of HTTP of an error that is an answer, or 0.
func code(err error) int {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return int(status.Status().Code)
}

// tagOf is the ETag of what was hashed.
func tagOf(sum hash.Hash) string { return `"` + hex.EncodeToString(sum.Sum(nil)) + `"` }

// download is one under way.
type download struct {
	client   *Client
	file     File
	to       io.Writer
	progress Progress
	backoff  Backoff
	// tag is the ETag, size how many bytes the file has.
	tag      string
	at, size int64
	hash     hash.Hash
	// part is how many bytes are asked for at once, 0 for all.
	part int64
	// refused is why no more is taken.
	refused error
}

// nextPart is how many bytes are asked for when those were too many.
func nextPart(part int64) int64 {
	if part == 0 {
		return maxPart
	}
	return max(minPart, part/2)
}

func (d *download) request(ctx context.Context) error {
	r := d.file.request(http.MethodGet)
	isPart := d.at > 0 || d.part > 0
	if isPart {
		last := ""
		if d.part > 0 {
			last = strconv.FormatInt(d.at+d.part-1, 10)
		}
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-%s", d.at, last))
	}
	if d.tag != "" {
		r.Header.Set("If-Match", d.tag)
	}
	response, err := d.client.Do(ctx, r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	end, err := d.place(response, isPart)
	if err != nil {
		return &protocolError{err}
	}
	return d.copy(response.Body, end)
}

// protocolError is an answer that doesn't make sense. Asking again doesn't help.
type protocolError struct{ err error }

func (e *protocolError) Error() string { return e.err.Error() }

// place reads which part of the file an answer has, and returns the offset of its end.
func (d *download) place(response *http.Response, isPart bool) (end int64, err error) {
	tag := response.Header.Get("ETag")
	if len(tag) != 2+2*sha256.Size || d.tag != "" && tag != d.tag {
		return 0, fmt.Errorf("the answer has the ETag %.100q", tag)
	}
	start, size := int64(0), response.ContentLength
	end = size
	if response.StatusCode == http.StatusPartialContent {
		if start, end, size, err = parseContentRange(response.Header.Get("Content-Range")); err != nil {
			return 0, err
		}
	} else if isPart && d.at > 0 {
		return 0, errors.New("the answer has all of the file, not the part that was asked for")
	}
	if start != d.at || end < start || end > size || d.size != unknown && size != d.size {
		return 0, fmt.Errorf("the answer has bytes %d up to %d of %d, at offset %d of %d", start, end, size, d.at, d.size)
	}
	d.tag, d.size = tag, size
	return end, nil
}

// parseContentRange reads "bytes 0-9/20".
func parseContentRange(text string) (start, end, size int64, err error) {
	const form = "bytes %d-%d/%d"
	_, err = fmt.Sscanf(text, form, &start, &end, &size)
	if err != nil || fmt.Sprintf(form, start, end, size) != text || start < 0 || start > end {
		return 0, 0, 0, fmt.Errorf("the answer has the Content-Range %.100q", text)
	}
	return start, end + 1, size, nil
}

// copy passes bytes on up to the end of the answer's part.
func (d *download) copy(body io.Reader, end int64) error {
	buffer := make([]byte, bufferSize)
	for d.at < end {
		n, err := body.Read(buffer[:min(bufferSize, end-d.at)])
		if n > 0 {
			d.backoff.Progress()
			if _, d.refused = d.to.Write(buffer[:n]); d.refused != nil {
				return d.refused
			}
			d.hash.Write(buffer[:n])
			d.at += int64(n)
			d.progress.report(d.at, d.size)
		}
		if err != nil && d.at < end {
			return fmt.Errorf("the answer ended at byte %d of %d: %w", d.at, end, err)
		}
	}
	return nil
}

// Content is what is uploaded.
type Content struct {
	// Open gives it from its start.
	Open func() (io.ReadCloser, error)
	// Size is -1 when it isn't known.
	Size int64
	// Once says that it can be opened once: it isn't sent again after an error.
	Once bool
}

// Upload writes a file, whole or not at all.
func (c *Client) Upload(ctx context.Context, f File, what Content, progress Progress) error {
	backoff := Backoff{Patience: filePatience}
	for {
		body, err := what.Open()
		if err != nil {
			return err
		}
		sent := &content{body: body, size: what.Size, sum: sha256.New(), progress: progress}
		err = c.put(ctx, f, sent)
		switch failed := sent.failure(); {
		case err != nil && failed != nil:
			return failed
		case err == nil || what.Once || ctx.Err() != nil || errors.Is(err, ErrContent) || !IsPassing(err):
			return err
		}
		if err := backoff.Wait(ctx, err); err != nil {
			return err
		}
	}
}

func (c *Client) put(ctx context.Context, f File, content *content) error {
	r := f.request(http.MethodPut)
	r.Body, r.Length = content, content.size
	response, err := c.Do(ctx, r)
	if err != nil {
		return err
	}
	response.Body.Close()
	if f.Archive {
		return nil
	}
	if got, want := response.Header.Get("ETag"), content.tag(); got != want {
		return fmt.Errorf("%w: the file that was written has the ETag %.100q, what was sent %s", ErrContent, got, want)
	}
	return nil
}

// content hashes what is sent. The transport may read it still while an answer is there already.
type content struct {
	body     io.ReadCloser
	size     int64
	progress Progress
	mu       sync.Mutex
	sum      hash.Hash
	done     int64
	failed   error
}

func (c *content) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sum.Write(p[:n])
	c.done += int64(n)
	c.progress.report(c.done, c.size)
	switch {
	case errors.Is(err, io.EOF) && c.size >= 0 && c.done < c.size:
		err = fmt.Errorf("the file became shorter while it was read: %d of %d bytes", c.done, c.size)
		c.failed = err
	case err != nil && !errors.Is(err, io.EOF):
		c.failed = err
	}
	return n, err
}

func (c *content) Close() error { return c.body.Close() }

func (c *content) tag() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return tagOf(c.sum)
}

func (c *content) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// OpenArchive reads a directory as a tar archive. The caller closes it, and checks that the archive is whole: the API can't say
// its hash before it.
func (c *Client) OpenArchive(ctx context.Context, f File) (io.ReadCloser, error) {
	f.Archive = true
	backoff := Backoff{Patience: filePatience}
	for {
		response, err := c.Do(ctx, f.request(http.MethodGet))
		if err == nil {
			return response.Body, nil
		}
		if ctx.Err() != nil || !IsPassing(err) {
			return nil, err
		}
		if err := backoff.Wait(ctx, err); err != nil {
			return nil, err
		}
	}
}
