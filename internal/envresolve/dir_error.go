package envresolve

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"toolcall.dev/operator/internal/result"
)

// DirReason is the API's reason for refusing a working directory.
type DirReason string

// Reasons.
const (
	ReasonNotFound   DirReason = result.WorkingDirNotFound
	ReasonNotAllowed DirReason = result.WorkingDirNotAllowed
)

// DirError says which working directory was refused, why, and what is allowed.
type DirError struct {
	Reason DirReason
	// Path is the requested path, made absolute.
	Path string
	// Resolved is the directory that the path leads to, for ReasonNotAllowed.
	Resolved string
	// Allowed are the allowed paths of the environment.
	Allowed []string
	// Cause is set for ReasonNotFound.
	Cause error
}

func newDirError(reason DirReason, req DirRequest, resolved string, cause error) *DirError {
	path := req.absolute(req.WorkingDir)
	if !strings.HasPrefix(req.WorkingDir, "/") {
		path = strings.TrimSuffix(collapseSlashes(path), "/")
	}
	if path == "" {
		path = "/"
	}
	return &DirError{Reason: reason, Path: path, Resolved: resolved, Allowed: req.allowed(), Cause: cause}
}

// collapseSlashes removes double slashes, for messages.
func collapseSlashes(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

func (e *DirError) Unwrap() error { return e.Cause }

func (e *DirError) Error() string {
	if e.Reason == ReasonNotFound {
		return fmt.Sprintf("working directory %s can't be used: %s; choose an existing directory in %s",
			quotePath(e.Path), describe(e.Cause), list(e.Allowed))
	}
	where := ""
	if e.Resolved != e.Path {
		where = " leads to " + quotePath(e.Resolved) + ", which"
	}
	return fmt.Sprintf("working directory %s%s is outside of the environment's allowed paths: choose one in %s",
		quotePath(e.Path), where, list(e.Allowed))
}

// describe describes an error of the file system for a person.
func describe(err error) string {
	what := "unknown error"
	if err != nil {
		what = err.Error()
	}
	var at *fs.PathError
	if !errors.As(err, &at) {
		return what
	}
	switch what = at.Err.Error(); {
	case errors.Is(at.Err, fs.ErrNotExist):
		what = "no such file or directory"
	case errors.Is(at.Err, fs.ErrPermission):
		what = "permission denied"
	}
	return quotePath(at.Path) + ": " + what
}

// list returns the first of the paths, and how many more there are.
func list(paths []string) string {
	const limit = 8
	shown := make([]string, 0, limit)
	for _, path := range paths[:min(limit, len(paths))] {
		shown = append(shown, quote(path))
	}
	text := strings.Join(shown, ", ")
	if more := len(paths) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// quotePath quotes a path that a call can have decided, whole: whoever shows the message may have values in it to redact, of
// which a cut would leave a part.
func quotePath(path string) string { return fmt.Sprintf("%q", path) }
