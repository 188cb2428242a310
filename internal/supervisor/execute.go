package supervisor

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/envresolve/realdir"
	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/files"
	"toolcall.dev/operator/internal/runner/resolver"
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
	// Run runs a command; runner.Run does it when nil.
	Run func(ctx context.Context, cmd runner.Command) result.Outcome
	// Hosts are the entries of /etc/hosts from before the first call.
	Hosts []resolver.HostsEntry
	// Pod is the pod's network from before the first call.
	Pod PodNetwork
	// Rules hold for calls that have none of their own; nil for none. A session without any isn't given secrets of single tools.
	Rules *rules.Rules
	// Outputs gets what is kept of the output; nil for nobody.
	Outputs *Outputs
	// Inputs keeps the standard input of background calls open that come without one; nil closes it.
	Inputs *Inputs
	// Session is the session whose calls run here; nil for a call with a pod of its own.
	Session *wire.Begin
}

// Execute finishes the plan with what only the pod knows, and runs the command, or does the operation on files. Several
// calls can run at a time if Run can do that. The result is within the bounds that the operator holds it to.
func (e *Executor) Execute(ctx context.Context, a *wire.Assignment) *wire.Result {
	r := e.execute(ctx, a)
	r.Shorten()
	return r
}

func (e *Executor) execute(ctx context.Context, a *wire.Assignment) *wire.Result {
	r := &wire.Result{CallUID: a.CallUID}
	resolved, private, err := e.resolve(a)
	defer func() { private.removeFrom(&r.Outcome) }()
	if err != nil {
		r.Outcome = notStarted(cmp.Or(reasonOf(err), result.InvalidEnvironment), err)
		return r
	}
	r.Environment = wire.Environment{Vars: resolved.Vars, Stripped: resolved.Stripped}
	hidden, err := newRedaction(resolved.Known)
	if err != nil {
		r.Outcome = notStarted(result.InvalidEnvironment, err)
		return r
	}
	p := &prepared{Resolved: resolved, files: private, hidden: hidden}
	if a.File != nil {
		r.Outcome = e.executeFile(ctx, a, p)
	} else {
		r.Outcome = e.executeCommand(ctx, a, p)
	}
	hidden.outcome(&r.Outcome)
	r.Environment.WorkingDir = r.Outcome.WorkingDir
	return r
}

// prepared is what a call needs of its pod.
type prepared struct {
	envresolve.Resolved
	// files are those of the variables and the snippet's; nil for none.
	files  *privateFiles
	hidden *redaction
}

func (e *Executor) executeCommand(ctx context.Context, a *wire.Assignment, p *prepared) result.Outcome {
	dir, path, err := realdir.OpenDir(a.Environment.DirRequest(e.WorkingDir))
	if err != nil {
		return notStarted(dirReason(err), err)
	}
	defer dir.Close()
	if reason, message := e.checkPod(a); reason != "" {
		return result.Outcome{Reason: reason, Message: message, WorkingDir: path}
	}
	argv := a.Argv
	if a.HasSource {
		file, err := p.addSnippet(a, dir)
		if err != nil {
			return result.Outcome{Reason: result.InvalidEnvironment, Message: err.Error(), WorkingDir: path}
		}
		argv = append(slices.Clone(argv), file)
	}
	command := runner.Command{
		Argv:    argv,
		Env:     p.Env,
		Dir:     path,
		DirFD:   dir,
		Stdin:   a.Stdin,
		Bounds:  a.Bounds,
		Network: e.networkOf(a),
		Redact:  p.hidden.matcher,
		Stdout:  e.Stdout,
		Stderr:  e.Stderr,
	}
	command.Rules = p.files.readable(e.rulesOf(a, path))
	if e.Outputs == nil {
		command.KeepBytesPerStream = 0
	} else {
		uid := a.CallUID
		command.OnStreams = func(stdout, stderr kept.Output) { e.Outputs.Set(uid, stdout, stderr) }
	}
	if a.Background && len(a.Stdin) == 0 && e.Inputs != nil {
		if command.Input, err = e.Inputs.open(a.CallUID); err != nil {
			o := notStarted(result.InvalidEnvironment, err)
			o.WorkingDir = path
			return o
		}
		defer command.Input.Close()
		defer e.Inputs.end(a.CallUID)
	}
	run := runner.Run
	if e.Run != nil {
		run = e.Run
	}
	o := run(ctx, command)
	o.WorkingDir = path
	// Before files are collected: a glob must not find them.
	p.files.removeFrom(&o)
	e.collect(ctx, a, path, p, &o)
	return o
}

// home is the process's home directory.
func (p *prepared) home() string { return runner.Variable(p.Env, homeVariable) }

func notStarted(reason string, err error) result.Outcome {
	return result.Outcome{Reason: reason, Message: err.Error()}
}

// refused is an error with the reason that a call or a transfer ends with.
func refused(reason, message string) error { return &files.Error{Reason: reason, Message: message} }

// reasonOf is the reason that an error has; empty for none.
func reasonOf(err error) string {
	var own *files.Error
	var dir *envresolve.DirError
	switch {
	case errors.As(err, &own):
		return own.Reason
	case errors.As(err, &dir):
		return dir.Reason
	default:
		return ""
	}
}

func dirReason(err error) string { return cmp.Or(reasonOf(err), result.WorkingDirNotFound) }
