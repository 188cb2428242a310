package collect

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files"
)

// report says what wasn't kept.
type report struct {
	omitted   int64
	omissions []omission
	notes     []string
	// shown is Request.Shown.
	shown     func(string) string
	isStopped bool
}

// omission is a reason for which files weren't kept.
type omission struct {
	why   string
	count int64
	// first is the path of the first, detail its error.
	first, detail string
}

// refusal is why a file isn't kept, worded to follow the number of such files.
type refusal string

func (r refusal) Error() string { return string(r) }

func (r *report) omit(path string, why refusal, detail string) {
	r.omitted++
	at := slices.IndexFunc(r.omissions, func(o omission) bool { return o.why == string(why) })
	if at < 0 {
		at = len(r.omissions)
		r.omissions = append(r.omissions, omission{why: string(why), first: path, detail: detail})
	}
	r.omissions[at].count++
}

// omitError finds the reason of an error.
func (r *report) omitError(path string, err error) {
	var own refusal
	var refused *files.Error
	switch {
	case errors.As(err, &own):
		r.omit(path, own, "")
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		r.omit(path, "for which the pod has no room", "")
	case errors.As(err, &refused) && refused.Reason == result.IsDirectory:
		// A link to one matches, as the directory itself would.
	default:
		r.omit(path, "that can't be read", fmt.Sprintf(" (%.200s)", r.shown(err.Error())))
	}
}

// note adds a sentence about a glob, of which there are at most 16.
func (r *report) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// message says all of it; empty when there is nothing to say.
func (r *report) message() string {
	var parts []string
	if r.isStopped {
		parts = append(parts, "Collecting was stopped before its end: there may be more files.")
	}
	for _, o := range r.omissions {
		parts = append(parts, fmt.Sprintf("%d %s%s, such as %.100q.", o.count, o.why, o.detail, o.first))
	}
	// Before it is cut to its bound: a part of a value would stay.
	return result.ArtifactsMessage(r.shown(strings.Join(append(parts, r.notes...), " ")))
}
