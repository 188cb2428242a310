package supervisor

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/envresolve/realdir"
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
}

// Execute finishes the plan with what only the pod knows, and runs the command. The result is within the bounds that the
// operator holds it to.
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
		Rules:             writable(cmp.Or(a.Rules, e.Rules), a, path),
		Stdout:            e.Stdout,
		Stderr:            e.Stderr,
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
	return r
}

// writable says where the commands of root may write when the policy doesn't: without a bound, root can write to every
// program, so that none of those that are listed could run.
func writable(r *rules.Rules, a *wire.Assignment, dir string) *rules.Rules {
	if r == nil || r.Programs == nil || r.WritePaths != nil || os.Geteuid() != 0 {
		return r
	}
	bounded := *r
	bounded.WritePaths = []string{"/workspace", "/tmp"}
	for _, path := range append([]string{dir}, a.Environment.AllowedPaths...) {
		if path != "/" {
			bounded.WritePaths = append(bounded.WritePaths, path)
		}
	}
	return &bounded
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
