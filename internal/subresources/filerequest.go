package subresources

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/spec"
)

// Parameters of a request for files.
const (
	parameterPath    = "path"
	parameterArchive = "archive"
)

// fileRequest says what a client asks of files.
type fileRequest struct {
	path string
	kind wire.TransferKind
	// ifSHA256 is the condition of a write or a deletion; empty for a file that must not be there, spec.AnySHA256 for one that must, nil
	// without one.
	ifSHA256 *string
	// ifMatch and ifNoneMatch are the conditions of a read, as they came.
	ifMatch, ifNoneMatch string
}

// parseParameters reads the parameters of a request, each of which may be given once.
func parseParameters(r *http.Request, known ...string) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, apierrors.NewBadRequest("the query can't be parsed: " + err.Error())
	}
	for name, given := range values {
		if !slices.Contains(known, name) && name != parameterTimeout {
			return nil, badRequest("unknown parameter %q: there are %s", name, strings.Join(known, ", "))
		}
		if len(given) > 1 {
			return nil, badRequest("parameter %s is given %d times", name, len(given))
		}
	}
	return values, nil
}

// parseFileRequest reads the parameters and headers of a request. Everything that it doesn't understand is an error.
func parseFileRequest(r *http.Request) (*fileRequest, error) {
	values, err := parseParameters(r, parameterPath, parameterArchive)
	if err != nil {
		return nil, err
	}
	q := &fileRequest{path: values.Get(parameterPath)}
	if q.path == "" {
		return nil, badRequest("parameter %s is missing: it names the file", parameterPath)
	}
	if !utf8.ValidString(q.path) {
		return nil, badRequest("parameter %s is %.300q: it must be UTF-8", parameterPath, q.path)
	}
	if values.Has(parameterArchive) {
		return q, q.parseArchive(r, values.Get(parameterArchive))
	}
	match, noneMatch := strings.Join(r.Header.Values("If-Match"), ","), strings.Join(r.Header.Values("If-None-Match"), ",")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		q.kind, q.ifMatch, q.ifNoneMatch = wire.TransferRead, match, noneMatch
		return q, nil
	case http.MethodPut:
		q.kind = wire.TransferWrite
		for _, header := range []string{"Content-Range", "Content-Encoding"} {
			if r.Header.Get(header) != "" {
				return nil, badRequest("%s can't be served: a file is written whole, as it comes", header)
			}
		}
		if noneMatch == "*" && match == "" {
			q.ifSHA256 = ptr.To("")
			return q, nil
		}
	default:
		q.kind = wire.TransferDelete
	}
	if noneMatch != "" {
		return nil, badRequest(`If-None-Match %.100q can't be served: a PUT can have * for a file that must not be there`, noneMatch)
	}
	if match == "" {
		return q, nil
	}
	sum, ok := sumOfTag(match)
	switch {
	case match == "*":
		sum = spec.AnySHA256
	case !ok:
		return nil, badRequest("If-Match %.100q can't be served: it must be the ETag of one answer, or * for a file that must be there", match)
	}
	q.ifSHA256 = &sum
	return q, nil
}

// parseArchive reads a request for a directory. It has no conditions: there is no checksum of a directory.
func (q *fileRequest) parseArchive(r *http.Request, archive string) error {
	if archive != "tar" {
		return badRequest("parameter %s is %.100q: it must be tar", parameterArchive, archive)
	}
	for _, header := range []string{"If-Match", "If-None-Match", "If-Range", "Range", "Content-Range", "Content-Encoding"} {
		if r.Header.Get(header) != "" {
			return badRequest("%s can't be served with %s", header, parameterArchive)
		}
	}
	switch r.Method {
	case http.MethodGet:
		q.kind = wire.TransferPack
	case http.MethodPut:
		q.kind = wire.TransferUnpack
	default:
		return badRequest("a directory is read with GET and written with PUT")
	}
	return nil
}

// tagOf is the ETag of a file.
func tagOf(sha256 string) string { return `"` + sha256 + `"` }

// sumOfTag is the checksum that an ETag has.
func sumOfTag(tag string) (sum string, ok bool) {
	sum, opened := strings.CutPrefix(strings.TrimSpace(tag), `"`)
	sum, closed := strings.CutSuffix(sum, `"`)
	return sum, opened && closed && len(sum) == 64 && strings.Trim(sum, "0123456789abcdef") == ""
}

// listsTag says whether a list of ETags has one, or is *. Weak ones match only where that is enough.
func listsTag(list, tag string, weak bool) bool {
	for one := range strings.SplitSeq(list, ",") {
		one = strings.TrimSpace(one)
		if weak {
			one = strings.TrimPrefix(one, "W/")
		}
		if one == "*" || one == tag {
			return true
		}
	}
	return false
}
