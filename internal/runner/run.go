package runner

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/anycase"
	"toolcall.dev/operator/internal/runner/redact"
	"toolcall.dev/operator/internal/runner/sandbox"
)

// runMutex allows one Run at a time: two would take each other's processes for their own.
var runMutex sync.Mutex

// Run starts the command and returns when it and everything it started has ended. It stops the command when the context
// ends. The reason is that of the Stop which is the cause of the context, and CancelRequested without one.
//
// The outcome is redacted, and then shortened to what Validate accepts.
func Run(ctx context.Context, cmd Command, opts ...Option) result.Outcome {
	var matcher *redact.Matcher
	if len(cmd.Redact) > 0 {
		var err error
		if matcher, err = redact.For(cmd.Redact); err != nil {
			return result.Outcome{Reason: result.InvalidEnvironment, Message: "The command was not started: " + err.Error() + "."}
		}
	}
	o := runCommand(ctx, &cmd, matcher, opts)
	if matcher != nil {
		redactTexts(&o, cmd.Redact, matcher)
	}
	o.Shorten()
	return o
}

// redactTexts redacts what an outcome says beside its streams.
func redactTexts(o *result.Outcome, values []redact.Value, matcher *redact.Matcher) {
	hosts := anycase.New(values)
	replace := func(text string) string {
		text, counts := matcher.Text(text)
		addRedactions(o, counts, result.RedactedMessage)
		return text
	}
	o.ReplaceTexts(replace, func(text string) string {
		text, counts := hosts.Text(replace(text))
		addRedactions(o, counts, result.RedactedMessage)
		return text
	})
}

// runCommand runs a command whose output a matcher redacts, if it isn't nil.
func runCommand(ctx context.Context, cmd *Command, matcher *redact.Matcher, opts []Option) result.Outcome {
	runMutex.Lock()
	defer runMutex.Unlock()
	r := &run{cmd: *cmd, matcher: matcher, options: newOptions(opts), children: make(chan os.Signal, 1)}
	if err := context.Cause(ctx); err != nil {
		r.stop = stopCause(err)
		return r.outcome()
	}
	// Before the start, so that the end of no child is missed.
	signal.Notify(r.children, unix.SIGCHLD)
	defer signal.Stop(r.children)
	// One that was started ahead for this call and isn't used.
	defer discardStage()
	defer func() { r.connections.close() }()
	r.oomBefore, _ = r.oomKills()
	if err := r.start(ctx); err != nil {
		return startFailure(err)
	}
	r.onStart(r.startedAt)
	r.before.afterStart()
	r.supervise(ctx)
	return r.outcome()
}

// run is the state of one Run.
type run struct {
	options
	cmd Command
	// matcher redacts the output; nil for none.
	matcher *redact.Matcher
	// connections decide about the command's; nil when nothing does.
	connections *connections
	// noNetwork is what the node lacks for a network that nobody asked for.
	noNetwork string
	// domain is that of a question to a program, which has no rules; nil for a command.
	domain   *sandbox.Domain
	children chan os.Signal
	tree     *tree
	stdout   *stream
	stderr   *stream
	outputs  *outputs
	shown    *shown
	feeder   *feeder
	// inside is what the command is held by; nil for a command without rules.
	inside *sandbox.Process

	oomBefore uint64
	// before is what the command didn't take of what is counted at its end.
	before    usageBefore
	startedAt time.Time
	endedAt   time.Time
	// status is nil until the leader was reaped.
	status *unix.WaitStatus
	// stop is why the process was stopped; nil if it ended by itself.
	stop *Stop
	// leftRunning is how many processes the leader left when it ended by itself.
	leftRunning int64
	// survivors says that some process could not be ended.
	survivors bool
}

// StopCause returns why Run stops a command whose context ended with an error.
func StopCause(err error) Stop { return *stopCause(err) }

func stopCause(err error) *Stop {
	var s Stop
	switch {
	case errors.As(err, &s):
		return &s
	case errors.Is(err, context.DeadlineExceeded):
		return &Stop{Reason: result.TimedOut, Message: "The command was stopped at its deadline."}
	case errors.Is(err, context.Canceled):
		return &Stop{Reason: result.CancelRequested, Message: "The command was stopped on request."}
	default:
		return &Stop{Reason: result.CancelRequested, Message: "The command was stopped on request: " + err.Error()}
	}
}
