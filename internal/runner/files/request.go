package files

import (
	"context"
	"fmt"
	"io"
	"strings"
)

// Operation is what a Request asks for.
type Operation string

// Operations. Read, List, Glob, Grep and Stat are held to Rules.ReadPaths, the others to Rules.WritePaths.
const (
	OperationRead          Operation = "Read"
	OperationWrite         Operation = "Write"
	OperationEdit          Operation = "Edit"
	OperationList          Operation = "List"
	OperationGlob          Operation = "Glob"
	OperationGrep          Operation = "Grep"
	OperationStat          Operation = "Stat"
	OperationDelete        Operation = "Delete"
	OperationMakeDirectory Operation = "MakeDirectory"
	OperationMove          Operation = "Move"
)

// Unit is what the Offset and the Limit of a Read count.
type Unit string

// Units.
const (
	UnitLines Unit = "Lines"
	UnitBytes Unit = "Bytes"
)

// Limits of every request.
const (
	// DefaultLines is how many lines a Read returns without a limit.
	DefaultLines = 2000
	// MaxResults is the largest number of results of a List, Glob or Grep, and the default.
	MaxResults = 1000
	// DefaultMaxBytes is the limit of Rules without one.
	DefaultMaxBytes = 4 << 20
	// MaxPatternBytes is the longest pattern or glob.
	MaxPatternBytes = 8 << 10
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

// Request is one operation. Fields that the operation doesn't know are ignored.
type Request struct {
	Operation Operation
	// Path is absolute or relative to WorkingDir. Links in it are followed; Stat, Delete and Move don't follow the last. Where
	// a slash follows the last, Stat follows it, and Delete and Move refuse it.
	// Each directory on the way has to be one that the rules allow, or one above it.
	Path string
	// WorkingDir is absolute. It isn't needed for absolute paths.
	WorkingDir string
	// Home is what "~" stands for at the start of a path, alone or before a slash. It is absolute, or there is none.
	Home string

	// Offset and Limit say what to Read. The first line is 1, the first byte 0. An Offset of 0 is the start, a Limit of 0
	// stands for DefaultLines, or for Rules.MaxReadBytes.
	Offset, Limit int64
	// Unit is UnitLines if empty.
	Unit Unit

	// Content is what to Write.
	Content []byte
	// Mode are the permissions of what Write or MakeDirectory makes, at most 0777. Nil keeps those of a file that is
	// replaced, and stands for 0644 and 0755 otherwise.
	Mode *uint32
	// IfSHA256 makes a Write, an Edit, or a Delete of a file conditional on the file's content, in hexadecimal digits. An empty
	// string lets a Write create the file only.
	IfSHA256 *string

	// OldString is replaced by NewString in an Edit. It must be there exactly once, unless ReplaceAll is set. A line end "\n" in it
	// stands for "\r\n" too, and NewString gets the line ends of what it replaces. A byte-order mark isn't part of the first line.
	OldString, NewString string
	ReplaceAll           bool
	// Edits are, in place of these three, several changes, one after the other: all of them are made, or none.
	Edits []Replacement

	// Pattern is a glob for Glob; for Grep an RE2 expression, or text if Literal is set.
	Pattern string
	// Glob narrows a Grep to files whose path below Path matches. A glob without a slash is compared with the last name.
	Glob    string
	Literal bool
	// ContextLines is how many lines before and after a match Grep returns with it, at most MaxContextLines.
	ContextLines int
	// RespectGitIgnore has List, Glob and Grep leave out what the .gitignore files name that are in the tree, and those above it up
	// to the repository's.
	RespectGitIgnore bool
	// Recursive lets List descend, and Delete delete directories. Glob and Grep always descend.
	Recursive bool
	// MaxResults bounds the results of List, Glob and Grep. Zero, and more than MaxResults, stand for MaxResults.
	MaxResults int

	// Destination is the new path of a Move. A file there is replaced only if Overwrite is set, a directory never.
	Destination string
	Overwrite   bool
}

// Rules say what requests may reach. Empty lists allow nothing.
type Rules struct {
	// ReadPaths and WritePaths are absolute paths of directories. A request may reach what is below one of them; Delete and
	// Move don't touch the directory itself. Their paths must not contain symbolic links: a call could make one.
	ReadPaths, WritePaths []string
	// DeniedPaths are globs of what no request may reach, with everything below. One without a leading slash counts in
	// every directory. Upper and lower case don't differ, as in some file systems they don't.
	DeniedPaths []string
	// RunnerPaths are absolute paths of the runner's own that no request may reach, whatever the policy says.
	RunnerPaths []string
	// MaxReadBytes bounds what one Read returns, and the files that can be edited or compared.
	MaxReadBytes int64
	// MaxWriteBytes bounds the files that Write and Edit make, and those that Move copies to another file system. Zero stands
	// for DefaultMaxBytes in both.
	MaxWriteBytes int64
	// MaxOutputBytes bounds what is written to the output: what doesn't fit is left out at the end, and the result is
	// Truncated. Zero is no bound.
	MaxOutputBytes int64
	// Shown is what is written to the output of a text; nil for the text. It is asked before anything is cut. ShownAround is how
	// far around a page of a Read it can depend on the file.
	Shown       Shown
	ShownAround int64
	// Replaced is told what Shown replaced in what is written to the output. The goroutine of Do calls it.
	Replaced func(map[string]int64)
}

// Result is what an operation did. Fields that don't apply are empty.
type Result struct {
	// Path is what was reached: absolute, with links resolved. It has any bytes that a file name can have.
	Path string
	// Bytes is how much a Read returned, the size of a file that was written, or that a Stat found.
	Bytes int64
	// SHA256 is the content of the whole file, good for IfSHA256. A Read sets it only if it returned the file from start to
	// end and nobody wrote to it meanwhile, a Stat if the file is no larger than MaxReadBytes and can be read. None of them and
	// no Edit sets it where Shown replaces something of the content.
	SHA256 string
	// Lines is how many lines a Read of lines returned.
	Lines int
	// Matches is how many results were written, or how many entries a Delete removed, also one that failed.
	Matches int
	// Truncated says that there is more: of the file after NextOffset, or of results.
	Truncated bool
	// Changed says that a file was written to while it was read, so that what was returned may never have been its content.
	Changed bool
	// Created says that the file or directory wasn't there before.
	Created bool
	// Replaced is how often an Edit replaced OldString.
	Replaced int
	// NextOffset is where the next Read goes on, in the same unit, after a truncated one.
	NextOffset *int64
	// Skipped is what List, Glob and Grep left out.
	Skipped Skipped
	// Binary says that what a Read of lines returned isn't text.
	Binary bool
	// Note says more about a Read that returned no text, as a predicate of the file, or about a search that found nothing, as a
	// sentence; empty if there is nothing to say.
	Note string
}

// Skipped counts what wasn't looked at.
type Skipped struct {
	// Binary files contain a NUL byte.
	Binary int `json:"binary,omitempty"`
	// Denied files and directories match Rules.DeniedPaths, or are the kernel's or the runner's own.
	Denied int `json:"denied,omitempty"`
	// Unreadable files and directories can't be opened, or vanished.
	Unreadable int `json:"unreadable,omitempty"`
	// Deep directories are MaxDepth below the path, or their paths are too long.
	Deep int `json:"deep,omitempty"`
	// LongLines were searched in their first 256 KiB only.
	LongLines int `json:"longLines,omitempty"`
}

func (s *Skipped) add(other Skipped) {
	s.Binary += other.Binary
	s.Denied += other.Denied
	s.Unreadable += other.Unreadable
	s.Deep += other.Deep
	s.LongLines += other.LongLines
}

// call is one Do.
type call struct {
	ctx    context.Context
	rules  *compiledRules
	req    *Request
	stdout io.Writer
}

// operations has how each is done.
var operations = map[Operation]struct {
	do     func(*call) (Result, error)
	writes bool
}{
	OperationRead:          {do: (*call).read},
	OperationWrite:         {do: (*call).write, writes: true},
	OperationEdit:          {do: (*call).edit, writes: true},
	OperationList:          {do: (*call).list},
	OperationGlob:          {do: (*call).glob},
	OperationGrep:          {do: (*call).grep},
	OperationStat:          {do: (*call).stat},
	OperationDelete:        {do: (*call).remove, writes: true},
	OperationMakeDirectory: {do: (*call).makeDirectory, writes: true},
	OperationMove:          {do: (*call).move, writes: true},
}

// Do carries out a request. Its error is an *Error, that of the context, or that of stdout.
func Do(ctx context.Context, rules *Rules, r *Request, stdout io.Writer) (Result, error) {
	operation, ok := operations[r.Operation]
	if !ok {
		return Result{}, newError(InvalidRequest, "There is no operation %s: use one of Read, Write, Edit, List, Glob, "+
			"Grep, Stat, Delete, MakeDirectory and Move.", quote(string(r.Operation)))
	}
	c, err := newCall(ctx, rules, r, operation.writes)
	if err != nil {
		return Result{}, err
	}
	c.stdout = stdout
	return operation.do(c)
}

// readsLines says that a Read counts lines.
func (r *Request) readsLines() bool { return r.Unit != UnitBytes }

// absolute joins without cleaning, because "link/.." isn't ".".
func (r *Request) absolute(path string) (string, error) {
	switch {
	case path == "":
		return "", newError(InvalidRequest, "The path is empty: name a file or directory; \".\" is the working directory.")
	case strings.ContainsRune(path, 0):
		return "", newError(InvalidRequest, "The path %s contains a NUL byte, which no file name can.", quote(path))
	case len(path) > maxPathBytes:
		return "", newError(InvalidRequest, "The path is %d bytes long: a path has at most %d.", len(path), maxPathBytes)
	case strings.HasPrefix(path, "/"):
		return path, nil
	case path == "~", strings.HasPrefix(path, "~/"):
		if !strings.HasPrefix(r.Home, "/") || strings.ContainsRune(r.Home, 0) {
			return "", newError(InvalidRequest, "The path %s is in the home directory, and HOME is %s, which isn't an absolute path: set "+
				"HOME, or name an absolute path.", quote(path), quote(r.Home))
		}
		return r.Home + path[1:], nil
	case !strings.HasPrefix(r.WorkingDir, "/") || strings.ContainsRune(r.WorkingDir, 0):
		return "", newError(InvalidRequest, "The path %s is relative to the working directory, and %s isn't an absolute path: "+
			"name an absolute path.", quote(path), quote(r.WorkingDir))
	}
	return r.WorkingDir + "/" + path, nil
}

// permissions returns the mode that was asked for, or the given one.
func (r *Request) permissions(otherwise uint32) (uint32, error) {
	switch {
	case r.Mode == nil:
		return otherwise, nil
	case *r.Mode > 0o777:
		return 0, newError(InvalidRequest, "The mode %#o isn't from 0 to 0777: it has permissions only.", *r.Mode)
	}
	return *r.Mode, nil
}

// maxResults returns the bound of results.
func (r *Request) maxResults() (int, error) {
	switch {
	case r.MaxResults < 0:
		return 0, newError(InvalidRequest, "The maxResults is %d: it is from 1 to %d.", r.MaxResults, MaxResults)
	case r.MaxResults == 0:
		return MaxResults, nil
	}
	return min(r.MaxResults, MaxResults), nil
}

// quote makes text safe for a message. It stays whole: whoever shows the message may have values in it to redact, of which a cut
// would leave a part.
func quote(s string) string { return fmt.Sprintf("%q", s) }
