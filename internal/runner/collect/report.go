package collect

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files"
)

// cause is why files weren't kept.
type cause int

const (
	overCount cause = iota
	tooLarge
	overTotal
	badPath
	controlPath
	noFile
	noRoom
	unreadable
	sameName
	causes
)

// report says what wasn't kept.
type report struct {
	omitted int64
	by      [causes]struct {
		count int64
		// first is the path of the first, why its error.
		first, why string
	}
	notes []string
	// shown is Request.Shown.
	shown     func(string) string
	isStopped bool
}

func (r *report) omit(why cause, path string) {
	r.omitted++
	r.by[why].count++
	if r.by[why].count == 1 {
		r.by[why].first = path
	}
}

// omitError finds the cause of an error.
func (r *report) omitError(path string, err error) {
	why := unreadable
	var refused *files.Error
	switch {
	case errors.Is(err, errTooLarge):
		why = tooLarge
	case errors.Is(err, errOverTotal):
		why = overTotal
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		why = noRoom
	case errors.As(err, &refused) && refused.Reason == result.IsDirectory:
		// A link to one matches, as the directory itself would.
		return
	}
	r.omit(why, path)
	if r.by[why].why == "" {
		r.by[why].why = err.Error()
		if r.shown != nil {
			r.by[why].why = r.shown(r.by[why].why)
		}
	}
}

// maxNotes bounds the sentences about globs: there are at most 16 globs.
const maxNotes = 32

func (r *report) note(format string, args ...any) {
	if len(r.notes) < maxNotes {
		r.notes = append(r.notes, fmt.Sprintf(format, args...))
	}
}

// message says all of it; empty when there is nothing to say.
func (r *report) message(c *collector) string {
	var parts []string
	if r.isStopped {
		parts = append(parts, "Collecting was stopped before its end: there may be more files.")
	}
	for why := range causes {
		if b := &r.by[why]; b.count > 0 {
			parts = append(parts, fmt.Sprintf("%s, such as %.100q.", describe(why, b.count, b.why, c), b.first))
		}
	}
	text := strings.Join(append(parts, r.notes...), " ")
	if r.shown != nil {
		// Before it is cut to its bound: a part of a value would stay.
		text = r.shown(text)
	}
	return result.ArtifactsMessage(text)
}

func describe(why cause, count int64, err string, c *collector) string {
	switch why {
	case overCount:
		return fmt.Sprintf("%d more than the %d files that are kept, or than %d bytes of paths", count, c.MaxCount, result.MaxArtifactPaths)
	case tooLarge:
		return fmt.Sprintf("%d larger than %d bytes", count, c.MaxBytes)
	case overTotal:
		return fmt.Sprintf("%d that don't fit into %d bytes in all", count, c.MaxTotalBytes)
	case badPath:
		return fmt.Sprintf("%d whose path isn't UTF-8, or takes more than %d bytes as JSON", count, result.MaxArtifactPath)
	case controlPath:
		return fmt.Sprintf("%d whose path has control characters: rename them", count)
	case noFile:
		return fmt.Sprintf("%d that aren't regular files", count)
	case noRoom:
		return fmt.Sprintf("%d for which the pod has no room", count)
	case sameName:
		return fmt.Sprintf("%d with a path that another one has when the values of Secrets in it are redacted", count)
	default:
		return fmt.Sprintf("%d that can't be read (%.200s)", count, err)
	}
}
