package envresolve

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"toolcall.dev/operator/internal/result"
)

// DirError says which working directory was refused, why, and what is allowed.
type DirError struct {
	// Reason is WorkingDirNotFound or WorkingDirNotAllowed.
	Reason  string
	message string
	// cause is set for WorkingDirNotFound.
	cause error
}

func (e *DirError) Error() string { return e.message }

func (e *DirError) Unwrap() error { return e.cause }

func (r DirRequest) notFound(cause error) *DirError {
	message := fmt.Sprintf("working directory %s can't be used: %s; choose an existing directory in %s", quotePath(r.path()), describe(cause), list(r.allowed()))
	if strings.HasPrefix(r.WorkingDir, "~") {
		message += `; here "~" is a name like others, and not the home directory`
		return &DirError{result.WorkingDirNotFound, message, cause}
	}
	isAllowed := slices.ContainsFunc(r.allowed(), func(root string) bool { return within(root, path.Clean(r.path())) })
	if isAllowed && errors.Is(cause, fs.ErrNotExist) {
		message += ", or, in a session, make it with the file action MakeDirectory"
	}
	return &DirError{result.WorkingDirNotFound, message, cause}
}

func (r DirRequest) notAllowed(resolved string) *DirError {
	where := quotePath(r.path())
	if resolved != r.path() {
		where += " leads to " + quotePath(resolved) + ", which"
	}
	message := fmt.Sprintf("working directory %s is outside of the environment's allowed paths: choose one in %s", where, list(r.allowed()))
	return &DirError{result.WorkingDirNotAllowed, message, nil}
}

// path is the requested one, made absolute, for messages.
func (r DirRequest) path() string {
	return cmp.Or(strings.TrimRight(r.absolute(r.WorkingDir), "/"), "/")
}

// describe describes an error of the file system for a person.
func describe(err error) string {
	var at *fs.PathError
	if !errors.As(err, &at) {
		return err.Error()
	}
	what := at.Err.Error()
	switch {
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
	var shown []string
	for _, path := range paths[:min(limit, len(paths))] {
		shown = append(shown, quote(path))
	}
	text := strings.Join(shown, ", ")
	if more := len(paths) - limit; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// quotePath quotes a path that a call can have decided, whole: whoever shows the message may have values in it to redact, of
// which a cut would leave a part.
func quotePath(path string) string { return fmt.Sprintf("%q", path) }
