package files

import (
	"cmp"
	"context"
	"errors"
	"strings"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/runner/redact"
	"toolcall.dev/operator/internal/spec"
)

// Limits of every request.
const (
	// DefaultLines is how many lines a Read returns without a limit.
	DefaultLines = 2000
	// MaxResults is the largest number of results of a List, Glob or Grep, and the default.
	MaxResults = 1000
	// DefaultMaxBytes is the limit of Rules without one.
	DefaultMaxBytes = 4 << 20
	// MaxLineBytes is how much of a line a Grep returns.
	MaxLineBytes = 512
	// MaxContextLines is how many lines before and after a match a Grep returns at most.
	MaxContextLines = 20
	// MaxEdits is how many changes an Edit makes at most.
	MaxEdits = 100
	// MaxDepth is how many directories deep a tree is walked.
	MaxDepth = 256

	maxPathBytes = 4096
)

// Rules say what requests may reach. Empty lists allow nothing, and nor do those that are nil. No bound is less than zero.
type Rules struct {
	spec.FileRules
	// RunnerPaths are absolute paths of the runner's own that no request may reach, whatever the policy says.
	RunnerPaths []string
	// MaxOutputBytes bounds the output: what doesn't fit is left out at the end, and the result is
	// Truncated. Zero is no bound.
	MaxOutputBytes int64
	// Hidden returns what of a text isn't in the output, but a mark in its place; nil hides nothing. It is asked before
	// anything is cut. Goroutines call it at the same time. HiddenAround is how long something hidden can be.
	Hidden       func(text []byte) []redact.Span
	HiddenAround int64
}

// Result is what an operation did.
type Result struct {
	// File has the fields that apply to the operation. Its Path is absolute, with links resolved, and has any bytes that a file name can
	// have. A Read sets the SHA256 only if it returned the file from start to end and nobody wrote to it meanwhile, a Stat if the file is
	// no larger than MaxReadBytes and can be read. Where Hidden hides something of the content, neither they nor an Edit set it.
	reason.File
	// Redacted is how often each name that Rules.Hidden gives stands in the output.
	Redacted map[string]int64
	// Note says more about a Read that returned no text, as a predicate of the file, or about a search that found nothing, as a
	// sentence; empty if there is nothing to say.
	Note string
}

// Skipped counts what wasn't looked at. Of longer lines, the first 256 KiB were searched.
type Skipped = reason.SkippedFiles

// Error says why a request failed. Its Reason is part of the API.
type Error = sys.Error

// call is one Do.
type call struct {
	ctx   context.Context
	rules *compiledRules
	req   *spec.File
	out   []byte
	// unpacks lets a read-only file be replaced, as tar does: otherwise a repository, whose objects are read-only, unpacks only once.
	unpacks bool
	// redacted becomes that of the result.
	redacted map[string]int64
}

// count counts the names of what is hidden in the output.
func (c *call) count(names []string) {
	for _, name := range names {
		c.redacted[name]++
	}
}

// operations has how each is done.
var operations = map[spec.Operation]struct {
	do     func(*call) (Result, error)
	writes bool
}{
	spec.OperationRead:          {do: at(how{follow: true}, (*call).read)},
	spec.OperationWrite:         {do: (*call).write, writes: true},
	spec.OperationEdit:          {do: at(how{follow: true}, (*call).edit), writes: true},
	spec.OperationList:          {do: at(how{follow: true}, (*call).list)},
	spec.OperationGlob:          {do: (*call).glob},
	spec.OperationGrep:          {do: at(how{follow: true}, (*call).grep)},
	spec.OperationStat:          {do: at(how{}, (*call).stat)},
	spec.OperationDelete:        {do: at(how{itself: true}, (*call).remove), writes: true},
	spec.OperationMakeDirectory: {do: (*call).makeDirectory, writes: true},
	spec.OperationMove:          {do: (*call).move, writes: true},
}

// at does something with what is at the path of a request.
func at(how how, do func(*call, *place) (Result, error)) func(*call) (Result, error) {
	return func(c *call) (Result, error) {
		p, err := c.resolve(c.req.Path, how)
		if err != nil {
			return Result{}, err
		}
		defer p.close()
		return do(c, p)
	}
}

// Do carries out a request. Its error is an *Error or that of the context.
func Do(ctx context.Context, rules *Rules, r *spec.File) (output []byte, result Result, err error) {
	operation, ok := operations[r.Operation]
	if !ok {
		return nil, Result{}, sys.NewError(reason.InvalidRequest, "There is no operation %s: use one of Read, Write, Edit, List, Glob, "+
			"Grep, Stat, Delete, MakeDirectory and Move.", sys.Quote(string(r.Operation)))
	}
	if r.MaxResults < 0 {
		return nil, Result{}, sys.NewError(reason.InvalidRequest, "The maxResults is %d: it is from 1 to %d.", r.MaxResults, MaxResults)
	}
	c, err := newCall(ctx, rules, r, operation.writes)
	if err != nil {
		return nil, Result{}, err
	}
	result, err = operation.do(c)
	switch {
	case err != nil && operation.writes:
		// A Delete that failed may have deleted a part.
		return nil, result, err
	case err != nil:
		return nil, Result{}, err
	}
	result.Redacted = c.redacted
	return c.out, result, nil
}

// readsLines says that a Read counts lines.
func readsLines(r *spec.File) bool { return r.Unit != spec.UnitBytes }

// absolute joins without cleaning, because "link/.." isn't ".".
func absolute(r *spec.File, path string) (string, error) {
	switch {
	case path == "":
		return "", sys.NewError(reason.InvalidRequest, "The path is empty: name a file or directory; \".\" is the working directory.")
	case strings.ContainsRune(path, 0):
		return "", sys.NewError(reason.InvalidRequest, "The path %s contains a NUL byte, which no file name can.", sys.Quote(path))
	case len(path) > maxPathBytes:
		return "", sys.NewError(reason.InvalidRequest, "The path is %d bytes long: a path has at most %d.", len(path), maxPathBytes)
	case strings.HasPrefix(path, "/"):
		return path, nil
	case path == "~", strings.HasPrefix(path, "~/"):
		if !strings.HasPrefix(r.Home, "/") || strings.ContainsRune(r.Home, 0) {
			return "", sys.NewError(reason.InvalidRequest, "The path %s is in the home directory, and HOME is %s, which isn't an absolute path: set "+
				"HOME, or name an absolute path.", sys.Quote(path), sys.Quote(r.Home))
		}
		return r.Home + path[1:], nil
	case !strings.HasPrefix(r.WorkingDir, "/") || strings.ContainsRune(r.WorkingDir, 0):
		return "", sys.NewError(reason.InvalidRequest, "The path %s is relative to the working directory, and %s isn't an absolute path: "+
			"name an absolute path.", sys.Quote(path), sys.Quote(r.WorkingDir))
	}
	return r.WorkingDir + "/" + path, nil
}

// permissions returns the mode that was asked for, or the given one.
func permissions(r *spec.File, otherwise uint32) (uint32, error) {
	switch {
	case r.Mode == nil:
		return otherwise, nil
	case *r.Mode > 0o777:
		return 0, sys.NewError(reason.InvalidRequest, "The mode %#o isn't from 0 to 0777: it has permissions only.", *r.Mode)
	}
	return *r.Mode, nil
}

// maxResults returns the bound of results.
func maxResults(r *spec.File) int { return min(cmp.Or(r.MaxResults, MaxResults), MaxResults) }

// reasonIs says that a request failed for a reason.
func reasonIs(err error, reason string) bool {
	known := (*Error)(nil)
	return errors.As(err, &known) && known.Reason == reason
}
