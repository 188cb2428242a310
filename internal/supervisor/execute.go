package supervisor

import (
	"context"
	"errors"
	"io"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/envresolve/realdir"
	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// Executor runs a call in this container.
type Executor struct {
	// Environ are the runner's own variables: the image's, and those that the operator put into the pod.
	Environ []string
	// WorkingDir is the directory that the runner was started in: the image's.
	WorkingDir string
	// Stdout and Stderr show the command's output as it is written: the pod's log.
	Stdout, Stderr io.Writer
	// Run runs a command and calls started when it runs; runner.Run does it when nil.
	Run func(ctx context.Context, cmd runner.Command, started func(time.Time)) result.Outcome
	// Rules hold for calls that have none of their own; nil for none.
	Rules *rules.Rules
	// Outputs gets what is kept of the output; nil for nobody.
	Outputs *Outputs
	// Inputs keeps the standard input of background calls open that come without one; nil closes it.
	Inputs *Inputs
	// Session is the session whose calls run here; nil for a call with a pod of its own.
	Session *wire.Begin
}

// Execute finishes the plan with what only the pod knows, and runs the command, or does the operation on files. The result is
// within the bounds that the operator holds it to.
func (e *Executor) Execute(ctx context.Context, a *wire.Assignment) *wire.Result {
	return e.ExecuteCall(ctx, a, func(time.Time) {})
}

// ExecuteCall does the same, and calls started when the command runs. Several calls can run at a time if Run can do that.
func (e *Executor) ExecuteCall(ctx context.Context, a *wire.Assignment, started func(time.Time)) *wire.Result {
	r := e.execute(ctx, a, started)
	r.Shorten()
	return r
}

func (e *Executor) execute(ctx context.Context, a *wire.Assignment, started func(time.Time)) *wire.Result {
	r := &wire.Result{CallUID: a.CallUID}
	resolved, err := envresolve.Resolve(&a.Environment, e.Environ, wire.Internal)
	if err != nil {
		r.Outcome = notStarted(result.InvalidEnvironment, err)
		return r
	}
	r.Environment = wire.Environment{Vars: resolved.Vars, Stripped: resolved.Stripped}
	if a.File != nil {
		var dir string
		r.Outcome, dir = e.executeFile(ctx, a, started)
		r.Environment.WorkingDir, r.Outcome.WorkingDir = dir, dir
		return r
	}
	dir, path, err := realdir.OpenDir(a.Environment.DirRequest(e.WorkingDir))
	if err != nil {
		r.Outcome = notStarted(dirReason(err), err)
		return r
	}
	defer dir.Close()
	r.Environment.WorkingDir = path
	command := runner.Command{
		Argv:              a.Argv,
		Env:               resolved.Env,
		Dir:               path,
		DirFD:             dir,
		Stdin:             a.Stdin,
		Timeout:           time.Duration(a.TimeoutMilliseconds) * time.Millisecond,
		MaxBytesPerStream: a.MaxBytesPerStream,
		DenyNetwork:       a.DenyNetwork,
		Rules:             e.rulesOf(a, path),
		Stdout:            e.Stdout,
		Stderr:            e.Stderr,
	}
	if e.Outputs != nil {
		command.KeepBytesPerStream = a.KeepBytesPerStream
		uid := a.CallUID
		command.OnStreams = func(stdout, stderr kept.Output) { e.Outputs.Set(uid, stdout, stderr) }
	}
	if a.Background && len(a.Stdin) == 0 && e.Inputs != nil {
		if command.Input, err = e.Inputs.open(a.CallUID); err != nil {
			r.Outcome = notStarted(result.InvalidEnvironment, err)
			return r
		}
		defer command.Input.Close()
		defer e.Inputs.end(a.CallUID)
	}
	if a.HasSource {
		command.Source = append([]byte{}, a.Source...)
		command.Argv = append(append([]string{}, a.Argv...), runner.SourceArg)
	}
	if e.Run != nil {
		r.Outcome = e.Run(ctx, command, started)
	} else {
		r.Outcome = runner.Run(ctx, command, runner.WithOnStart(started))
	}
	r.Outcome.WorkingDir = path
	e.collect(ctx, a, path, &r.Outcome)
	return r
}

func notStarted(reason string, err error) result.Outcome {
	return result.Outcome{Reason: reason, Message: err.Error()}
}

func dirReason(err error) string {
	var refused *envresolve.DirError
	if errors.As(err, &refused) {
		return string(refused.Reason)
	}
	return result.WorkingDirNotFound
}
