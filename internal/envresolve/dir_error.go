package envresolve

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// DirReason is why a working directory is refused; the API's reason of the same name.
type DirReason string

// Reasons.
const (
	ReasonNotFound   DirReason = "WorkingDirNotFound"
	ReasonNotAllowed DirReason = "WorkingDirNotAllowed"
)

// DirError says which working directory was refused, why, and what would be right.
type DirError struct {
	Reason DirReason
	// Path as it was asked for, made absolute.
	Path string
	// Resolved is where it leads, for ReasonNotAllowed.
	Resolved string
	// Allowed paths, as the environment gives them.
	Allowed []string
	// Cause, for ReasonNotFound.
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

// collapseSlashes drops doubled slashes that joining made; it is for messages only.
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
			quote(e.Path), describe(e.Cause), list(e.Allowed))
	}
	where := ""
	if e.Resolved != e.Path {
		where = " leads to " + quote(e.Resolved) + ", which"
	}
	return fmt.Sprintf("working directory %s%s lies outside the environment's allowed paths: choose one in %s",
		quote(e.Path), where, list(e.Allowed))
}

// describe says for a person what the file system answered.
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
	return quote(at.Path) + ": " + what
}

// list names the allowed paths, the first few of them when there are many.
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
