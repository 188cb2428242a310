package subresources

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/output"
)

// Parameters of a request for a stream.
const (
	parameterStream   = "stream"
	parameterArtifact = "artifact"
	parameterOffset   = "offset"
	parameterLimit    = "limit"
	parameterFollow   = "follow"
	parameterUID      = "uid"
	// parameterTimeout is what Kubernetes' clients add that have a time limit. They keep it themselves.
	parameterTimeout = "timeout"
)

// unlimited is the limit of a request without one.
const unlimited = 1<<63 - 1

// logRequest says which bytes a client asks for.
type logRequest struct {
	// stream is empty where artifact is the path of one.
	stream   output.Stream
	artifact string
	// uid is that of the call that the client means; empty for whichever there is.
	uid types.UID
	// offset and limit are the parameters.
	offset, limit int64
	follow        bool
	// span is the Range header, instead of offset and limit; nil without one.
	span *span
}

// span is one range of a Range header.
type span struct {
	// first and last are offsets; last is unlimited-1 without one.
	first, last int64
	// suffix is how many of the last bytes are meant, instead of both; 0 if it isn't that form.
	suffix int64
}

// parseLogRequest reads the parameters and headers of a request. Everything that it doesn't understand is an error.
func parseLogRequest(r *http.Request) (*logRequest, error) {
	values, err := parseParameters(r, parameterStream, parameterArtifact, parameterOffset, parameterLimit, parameterFollow, parameterUID)
	if err != nil {
		return nil, err
	}
	q := &logRequest{stream: output.Stdout, limit: unlimited, uid: types.UID(values.Get(parameterUID))}
	if err := q.parseWhich(values); err != nil {
		return nil, err
	}
	if err := q.parseNumbers(values); err != nil {
		return nil, err
	}
	if q.follow, err = parseBool(values, parameterFollow); err != nil {
		return nil, err
	}
	return q, q.parseRangeHeader(r, values)
}

// parseWhich says what is read: a stream, or an artifact, which is complete.
func (q *logRequest) parseWhich(values url.Values) error {
	if values.Has(parameterArtifact) {
		if values.Has(parameterStream) || values.Has(parameterFollow) {
			return badRequest("parameter %s excludes %s and %s", parameterArtifact, parameterStream, parameterFollow)
		}
		q.stream, q.artifact = "", values.Get(parameterArtifact)
		if q.artifact == "" {
			return badRequest("parameter %s is empty: it must be a path of the call's status.artifacts", parameterArtifact)
		}
		return nil
	}
	if values.Has(parameterStream) {
		q.stream = output.Stream(values.Get(parameterStream))
	}
	if q.stream != output.Stdout && q.stream != output.Stderr {
		return badRequest("unknown stream %q: there are %s and %s", q.stream, output.Stdout, output.Stderr)
	}
	return nil
}

func (q *logRequest) parseNumbers(values url.Values) error {
	for _, n := range []struct {
		name  string
		least int64
		into  *int64
	}{{parameterOffset, 0, &q.offset}, {parameterLimit, 1, &q.limit}} {
		if !values.Has(n.name) {
			continue
		}
		value, ok := parseOffset(values.Get(n.name))
		if !ok || value < n.least {
			return badRequest("parameter %s is %q: it must be a whole number from %d", n.name, values.Get(n.name), n.least)
		}
		*n.into = value
	}
	return nil
}

// parseBool reads a parameter that is false when it isn't given.
func parseBool(values url.Values, name string) (bool, error) {
	text := values.Get(name)
	if values.Has(name) && text != "true" && text != "false" {
		return false, badRequest("parameter %s is %.100q: it must be true or false", name, text)
	}
	return text == "true", nil
}

// parseOffset reads digits and nothing else.
func parseOffset(text string) (int64, bool) {
	n, err := strconv.ParseUint(text, 10, 63)
	return int64(n), err == nil
}

// parseRangeHeader reads a single range of bytes. If-Range isn't supported: RFC 9110 has a Range header ignored that comes
// with a condition that doesn't hold.
func (q *logRequest) parseRangeHeader(r *http.Request, values url.Values) error {
	header := r.Header.Values("Range")
	if len(header) == 0 || r.Header.Get("If-Range") != "" {
		return nil
	}
	if q.follow || values.Has(parameterOffset) || values.Has(parameterLimit) {
		return badRequest("a Range header excludes the parameters %s, %s and %s", parameterOffset, parameterLimit, parameterFollow)
	}
	text, isBytes := strings.CutPrefix(header[0], "bytes=")
	first, last, isRange := strings.Cut(text, "-")
	s := &span{last: unlimited - 1}
	ok := len(header) == 1 && isBytes && isRange
	switch {
	case !ok:
	case first == "":
		s.suffix, ok = parseOffset(last)
		// RFC 9110 calls a suffix of 0 bytes unsatisfiable.
		if ok && s.suffix == 0 {
			s.first = unlimited
		}
	default:
		s.first, ok = parseOffset(first)
		if ok && last != "" {
			s.last, ok = parseOffset(last)
			ok = ok && s.last >= s.first
		}
	}
	if !ok {
		return badRequest("Range %q can't be served: it must be one range, as in bytes=0-1023, bytes=1024- or bytes=-1024", strings.Join(header, ", "))
	}
	s.last = min(s.last, unlimited-1)
	q.span = s
	return nil
}

// resolve says which bytes of a stream are meant, of those that it has now and without the part that wasn't kept: from start
// up to, not including, end.
func (q *logRequest) resolve(info output.Info) (start, end int64, err error) {
	missing := info.Missing
	start, end = q.offset, info.Bytes
	if s := q.span; s != nil {
		start, end = s.first, min(s.last+1, info.Bytes)
		if s.suffix > 0 {
			start, end = max(info.Bytes-s.suffix, 0), info.Bytes
			// The last bytes are wanted: those of them that are there.
			if missing.Start <= start && start < missing.End {
				start = missing.End
			}
		}
		if start >= info.Bytes {
			return 0, 0, rangeNotSatisfiable(start, info)
		}
	}
	switch {
	case start > info.Bytes:
		return 0, 0, rangeNotSatisfiable(start, info)
	case missing.Start <= start && start < missing.End:
		return 0, 0, notKept(start, missing.End)
	case start < missing.Start:
		end = min(end, missing.Start)
	}
	if q.limit < end-start {
		end = start + q.limit
	}
	return start, end, nil
}

func badRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}
