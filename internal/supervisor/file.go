package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/envresolve/realdir"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/files"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
	"toolcall.dev/operator/internal/spec"
)

// fileStopLimit is how long an operation on files that was stopped is waited for: one that hangs in the file system can't be
// ended.
const fileStopLimit = time.Second

// maxFileOperations is how many operations on files run at a time; others wait. One that hangs keeps its place, so that no
// more threads than theirs can hang.
const maxFileOperations = 4

var fileSlots = make(chan struct{}, maxFileOperations)

// ReserveThreads starts the threads of all that may wait for a file system in a session of so many calls at a time, before a command can
// take all processes that there may be.
func ReserveThreads(calls int) {
	// Each of a call's two streams may wait for a disk, and one stream at a time for each of the pod's two logs.
	outputs := 2*(calls+wire.MaxBackgroundCalls) + 2
	kernel.ReserveThreads(maxFileOperations*files.MaxThreads() + wire.MaxTransfers + outputs)
}

// fileRun is one operation on files.
type fileRun struct {
	assignment *wire.Assignment
	// dir is the call's directory; empty when it couldn't be opened.
	dir    string
	result files.Result
	output []byte
	err    error
}

// executeFile does an operation on files in this process. The time limit holds for all of it: also finding its directory
// can hang.
func (e *Executor) executeFile(ctx context.Context, a *wire.Assignment, p *prepared) (o result.Outcome) {
	if a.TimeoutMilliseconds > 0 {
		limit := a.Timeout()
		timeout := runner.Stop{Reason: result.TimedOut, Message: fmt.Sprintf("The operation was stopped after %v.", limit)}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, timeout)
		defer cancel()
	}
	if err := takeFileSlot(ctx); err != nil {
		return fileNotBegun(err)
	}
	begin := time.Now()
	run, _ := inSlot(ctx, func() *fileRun { return e.doFile(ctx, a, p) }, func(*fileRun) {})
	if run != nil && run.dir == "" {
		return notStarted(dirReason(run.err), run.err)
	}
	o = fileOutcome(ctx, run)
	if run != nil {
		o.WorkingDir = run.dir
	}
	o.Started, o.Stderr = true, wholeStream(nil)
	end := time.Now()
	// Without the monotonic part, which has no meaning elsewhere.
	o.StartTime, o.CompletionTime, o.DurationMS = begin.Round(0), end.Round(0), end.Sub(begin).Milliseconds()
	return o
}

// takeFileSlot waits until the operation may run.
func takeFileSlot(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	select {
	case fileSlots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fileNotBegun is the outcome of an operation that was stopped before it began.
func fileNotBegun(cause error) result.Outcome {
	stop := runner.StopCause(cause)
	if stop.Reason == result.TimedOut {
		stop.Reason = result.StartTimeout
		stop.Message = fmt.Sprintf("%d other operations on files of this pod haven't ended in the time that the call has: a file system may not answer.", maxFileOperations)
	}
	return result.Outcome{Reason: stop.Reason, Message: stop.Message}
}

// doFile opens the call's directory, and does the operation in it.
func (e *Executor) doFile(ctx context.Context, a *wire.Assignment, p *prepared) *fileRun {
	run := &fileRun{assignment: a}
	dir, err := e.fileDir(&a.Environment)
	if err != nil {
		run.err = err
		return run
	}
	run.dir = dir
	asked := *a.File
	asked.WorkingDir, asked.Home = dir, p.home()
	run.output, run.result, run.err = files.Do(ctx, p.hidden.inFiles(e.fileRules(a, dir)), &asked)
	return run
}

// fileDir is the directory that paths are relative to. One that isn't there is given as it is written: an operation may be to
// make it, and finds out itself that it is missing. Nobody means a new one that is called "~".
func (e *Executor) fileDir(plan *envresolve.Plan) (string, error) {
	request := plan.DirRequest(e.WorkingDir)
	opened, dir, err := realdir.OpenDir(request)
	switch {
	case err == nil:
		_ = opened.Close()
		return dir, nil
	case dirReason(err) != result.WorkingDirNotFound, strings.HasPrefix(request.WorkingDir, "~"):
		return "", err
	case path.IsAbs(request.WorkingDir):
		return path.Clean(request.WorkingDir), nil
	default:
		return path.Join("/", request.ImageWorkingDir, request.WorkingDir), nil
	}
}

// inSlot does something in the place for operations on files that the caller has taken, and gives the place back afterwards. It waits as
// long as the context allows, and a little longer: a file system that hangs can't be ended. What is done after that goes to late.
func inSlot[T any](ctx context.Context, do func() T, late func(T)) (done T, isDone bool) {
	results, abandoned := make(chan T), make(chan struct{})
	go func() {
		defer func() { <-fileSlots }()
		r := do()
		select {
		case results <- r:
		case <-abandoned:
			late(r)
		}
	}()
	select {
	case r := <-results:
		return r, true
	case <-ctx.Done():
	}
	select {
	case r := <-results:
		return r, true
	case <-time.After(fileStopLimit):
		close(abandoned)
		return done, false
	}
}

// fileOutcome is the outcome of an operation; nil stands for one that hasn't ended.
func fileOutcome(ctx context.Context, run *fileRun) result.Outcome {
	o := result.Outcome{File: &result.File{}, Stdout: wholeStream(nil)}
	if run == nil {
		stop := runner.StopCause(context.Cause(ctx))
		o.Reason = stop.Reason
		o.Message = addSentence(stop.Message, "It has not ended yet, as where a file system doesn't answer: it may still take effect.")
		return o
	}
	// A Delete that failed may have deleted a part.
	if run.err == nil || run.result.Path != "" {
		o.File = &run.result.File
		o.File.Path = strings.ToValidUTF8(o.File.Path, "\uFFFD")
	}
	var refused *files.Error
	switch {
	case run.err == nil:
		o.Reason, o.Message = result.Completed, describeFile(run.assignment.File.Operation, o.File, run.result.Note)
		// It was redacted before it was cut to its bound.
		o.Stdout = wholeStream(run.output)
		addReplacements(&o, run.result.Redacted)
	case errors.As(run.err, &refused):
		o.Reason, o.Message = fileReason(refused.Reason), refused.Message
	case ctx.Err() != nil:
		stop := runner.StopCause(context.Cause(ctx))
		o.Reason, o.Message = stop.Reason, stop.Message
		if deleted := run.result.Matches; deleted != nil && *deleted > 0 {
			o.Message = addSentence(o.Message, fmt.Sprintf("%d files and directories in it were deleted before.", *deleted))
		}
	default:
		o.Reason, o.Message = result.FileError, run.err.Error()
	}
	return o
}

// addSentence adds a sentence to a message, which may have no full stop.
func addSentence(message, sentence string) string {
	return strings.TrimSuffix(message, ".") + ". " + sentence
}

func wholeStream(p []byte) result.Stream {
	sum := sha256.Sum256(p)
	return result.Stream{Head: p, Bytes: int64(len(p)), SHA256: hex.EncodeToString(sum[:]), InvalidUTF8: !utf8.Valid(p)}
}

// fileReason is the API's reason.
func fileReason(reason string) string {
	if reason == result.InvalidRequest || reason == result.NotSupported {
		return result.FileError
	}
	return reason
}

// fileRules are the policy's, completed with what only the pod knows.
func (e *Executor) fileRules(a *wire.Assignment, dir string) *files.Rules {
	r := &files.Rules{
		FileRules: a.File.Rules, RunnerPaths: privateFilesPaths(), MaxOutputBytes: int64(min(a.MaxBytesPerStream, result.MaxStreamBytes)),
	}
	if r.WritePaths == nil {
		r.WritePaths = e.defaultWritePaths(a, dir)
	}
	if r.ReadPaths == nil {
		req := a.Environment.DirRequest(e.WorkingDir)
		for _, allowed := range req.AllowedRoots() {
			if path.IsAbs(allowed) {
				r.ReadPaths = append(r.ReadPaths, path.Clean(allowed))
			}
		}
	}
	// What may be written may be read, as for commands: a Move would show it anyway.
	r.ReadPaths = slices.Concat(r.ReadPaths, r.WritePaths)
	return r
}

// describeFile is a sentence about an operation that succeeded.
func describeFile(operation spec.Operation, f *result.File, note string) string {
	switch operation {
	case spec.OperationRead:
		if note != "" {
			return f.Path + " " + note
		}
		return fmt.Sprintf("read %d bytes of %s", *f.Bytes, f.Path)
	case spec.OperationWrite:
		return fmt.Sprintf("wrote %d bytes to %s", *f.Bytes, f.Path) + newOrReplaced(f)
	case spec.OperationEdit:
		return fmt.Sprintf("edited %s in %d places", f.Path, *f.Replaced)
	case spec.OperationStat:
		return "looked at " + f.Path
	case spec.OperationDelete:
		return fmt.Sprintf("deleted %s: %d files and directories", f.Path, *f.Matches)
	case spec.OperationMakeDirectory:
		if !f.Created {
			return "the directory is there already: " + f.Path
		}
		return "made the directory " + f.Path
	case spec.OperationMove:
		return "moved to " + f.Path + newOrReplaced(f)
	default:
		found := fmt.Sprintf("found %d results in %s", *f.Matches, f.Path)
		if note != "" {
			found += ". " + note
		}
		return found
	}
}

// newOrReplaced says whether there was a file before.
func newOrReplaced(f *result.File) string {
	if f.Created {
		return ", which is new"
	}
	return ", in place of the file that was there"
}
