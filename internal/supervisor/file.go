package supervisor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/files"
)

const (
	// fileStopLimit is how long an operation on files that was stopped is waited for: one that hangs in the file system
	// can't be ended.
	fileStopLimit = time.Second
	// maxHanging is how many operations may hang: each has a thread.
	maxHanging = 16
)

// hanging counts the operations that were given up.
var hanging atomic.Int32

// executeFile does an operation on files in this process, in a directory.
func (e *Executor) executeFile(ctx context.Context, a *wire.Assignment, dir string, started func(time.Time)) result.Outcome {
	if err := context.Cause(ctx); err != nil {
		stop := runner.StopCause(err)
		return result.Outcome{Reason: stop.Reason, Message: stop.Message}
	}
	begin := time.Now()
	started(begin)
	if a.TimeoutMilliseconds > 0 {
		limit := time.Duration(a.TimeoutMilliseconds) * time.Millisecond
		timeout := runner.Stop{Reason: result.TimedOut, Message: fmt.Sprintf("The operation was stopped after %v.", limit)}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, timeout)
		defer cancel()
	}
	o := e.doFile(ctx, a, dir)
	o.Started = true
	if o.File == nil {
		o.File, o.Stdout = &result.File{}, wholeStream(nil)
	}
	o.Stderr = wholeStream(nil)
	end := time.Now()
	// Without the monotonic part, which has no meaning elsewhere.
	o.StartTime, o.CompletionTime, o.DurationMS = begin.Round(0), end.Round(0), end.Sub(begin).Milliseconds()
	return o
}

// fileDone is what an operation on files came to.
type fileDone struct {
	result files.Result
	output bytes.Buffer
	err    error
}

// doFile waits for the operation as long as the context allows, and a little longer.
func (e *Executor) doFile(ctx context.Context, a *wire.Assignment, dir string) result.Outcome {
	if n := hanging.Load(); n >= maxHanging {
		return result.Outcome{Reason: result.FileError, Message: fmt.Sprintf("%d operations on files hang: a file system doesn't answer.", n)}
	}
	done := make(chan *fileDone, 1)
	go func() {
		d := &fileDone{}
		d.result, d.err = files.Do(ctx, e.fileRules(a, dir), fileRequest(a.File, dir), &d.output)
		done <- d
	}()
	select {
	case d := <-done:
		return e.fileOutcome(ctx, a, d)
	case <-ctx.Done():
	}
	limit := time.NewTimer(fileStopLimit)
	defer limit.Stop()
	select {
	case d := <-done:
		return e.fileOutcome(ctx, a, d)
	case <-limit.C:
	}
	hanging.Add(1)
	go func() {
		<-done
		hanging.Add(-1)
	}()
	stop := runner.StopCause(context.Cause(ctx))
	return result.Outcome{Reason: stop.Reason, Message: stop.Message + " The file system doesn't answer: the operation may still take effect."}
}

// fileOutcome is the outcome of an operation that has ended.
func (e *Executor) fileOutcome(ctx context.Context, a *wire.Assignment, d *fileDone) result.Outcome {
	var refused *files.Error
	switch {
	case d.err == nil:
	case errors.As(d.err, &refused):
		return result.Outcome{Reason: fileReason(refused.Reason), Message: refused.Message}
	case ctx.Err() != nil:
		stop := runner.StopCause(context.Cause(ctx))
		return result.Outcome{Reason: stop.Reason, Message: stop.Message}
	default:
		return result.Outcome{Reason: result.FileError, Message: d.err.Error()}
	}
	o := result.Outcome{Reason: result.Completed, File: fileResult(files.Operation(a.File.Operation), &d.result)}
	o.Message = describeFile(files.Operation(a.File.Operation), o.File)
	o.Stdout = wholeStream(d.output.Bytes())
	return o
}

func wholeStream(p []byte) result.Stream {
	sum := sha256.Sum256(p)
	return result.Stream{Head: p, Bytes: int64(len(p)), SHA256: hex.EncodeToString(sum[:]), InvalidUTF8: !utf8.Valid(p)}
}

// fileReason is the API's reason. Rules that can't be applied allow nothing.
func fileReason(r files.Reason) string {
	switch r {
	case files.InvalidRules:
		return result.PathNotAllowed
	case files.InvalidRequest, files.NotSupported:
		return result.FileError
	default:
		return string(r)
	}
}

func fileRequest(f *wire.File, dir string) *files.Request {
	return &files.Request{
		Operation: files.Operation(f.Operation), Path: f.Path, WorkingDir: dir,
		Offset: f.Offset, Limit: f.Limit, Unit: files.Unit(f.Unit),
		Content: f.Content, Mode: f.Mode, IfSHA256: f.IfSHA256,
		OldString: f.OldString, NewString: f.NewString, ReplaceAll: f.ReplaceAll,
		Pattern: f.Pattern, Literal: f.Literal, Glob: f.Glob, Recursive: f.Recursive, MaxResults: f.MaxResults,
		Destination: f.Destination, Overwrite: f.Overwrite,
	}
}

// fileRules are the policy's, completed with what only the pod knows.
func (e *Executor) fileRules(a *wire.Assignment, dir string) *files.Rules {
	f := &a.File.Rules
	r := &files.Rules{
		ReadPaths: f.ReadPaths, WritePaths: f.WritePaths, DeniedPaths: f.DeniedPaths,
		MaxReadBytes: f.MaxReadBytes, MaxWriteBytes: f.MaxWriteBytes, MaxOutputBytes: int64(min(a.MaxBytesPerStream, result.MaxStreamBytes)),
	}
	if r.WritePaths == nil {
		r.WritePaths = append([]string{"/workspace", "/tmp"}, e.ownPaths(a, dir)...)
	}
	if r.ReadPaths == nil {
		req := a.Environment.DirRequest(e.WorkingDir)
		for _, allowed := range req.AllowedRoots() {
			if path.IsAbs(allowed) {
				r.ReadPaths = append(r.ReadPaths, path.Clean(allowed))
			}
		}
		r.ReadPaths = append(r.ReadPaths, r.WritePaths...)
	}
	return r
}

// fileResult has the fields that apply to the operation.
func fileResult(operation files.Operation, r *files.Result) *result.File {
	f := &result.File{
		Path: strings.ToValidUTF8(r.Path, "\uFFFD"), SHA256: r.SHA256, Truncated: r.Truncated, NextOffset: r.NextOffset,
		Changed: r.Changed, Created: r.Created,
		Skipped: result.SkippedFiles{
			Binary: int64(r.Skipped.Binary), Denied: int64(r.Skipped.Denied), Unreadable: int64(r.Skipped.Unreadable),
			Deep: int64(r.Skipped.Deep), LongLines: int64(r.Skipped.LongLines),
		},
	}
	switch operation {
	case files.OperationRead:
		f.Bytes, f.Lines = &r.Bytes, new(int64(r.Lines))
	case files.OperationWrite, files.OperationStat:
		f.Bytes = &r.Bytes
	case files.OperationEdit:
		f.Bytes, f.Replaced = &r.Bytes, new(int64(r.Replaced))
	case files.OperationList, files.OperationGlob, files.OperationGrep, files.OperationDelete:
		f.Matches = new(int64(r.Matches))
	}
	return f
}

// describeFile is a sentence about an operation that succeeded.
func describeFile(operation files.Operation, f *result.File) string {
	switch operation {
	case files.OperationRead:
		return fmt.Sprintf("read %d bytes of %s", *f.Bytes, f.Path)
	case files.OperationWrite:
		return fmt.Sprintf("wrote %d bytes to %s", *f.Bytes, f.Path)
	case files.OperationEdit:
		return fmt.Sprintf("edited %s in %d places", f.Path, *f.Replaced)
	case files.OperationStat:
		return "looked at " + f.Path
	case files.OperationDelete:
		return fmt.Sprintf("deleted %s: %d files and directories", f.Path, *f.Matches)
	case files.OperationMakeDirectory:
		if !f.Created {
			return "the directory is there already: " + f.Path
		}
		return "made the directory " + f.Path
	case files.OperationMove:
		return "moved to " + f.Path
	default:
		return fmt.Sprintf("found %d results in %s", *f.Matches, f.Path)
	}
}
