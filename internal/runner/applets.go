package runner

import (
	"context"
	"fmt"
	"strings"
	"time"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox"
	"toolcall.dev/operator/internal/spec"
)

const (
	// askLimit is how long the programs that a command may start have to show which kind they are.
	askLimit = 10 * time.Second
	// maxAnswer is how much of what they print is looked at.
	maxAnswer = 4 << 10
)

// unheldMessage says that a command may start programs that run others unseen, and its policy doesn't permit that.
func unheldMessage(policy string, paths []string) string {
	programs := make([]string, len(paths))
	for i, path := range paths {
		programs[i] = quote(path)
	}
	return fmt.Sprintf("The command was not started, because its policy's list of programs can't be enforced in this image: %s, which the policy "+
		"lists or needs, runs its applets without executing them, so to list one of them is to list all. Use a program that executes "+
		"its applets, such as Debian's busybox in place of busybox-static, or set binaries.multiCall of policy %q to Allow.",
		strings.Join(programs, ", "), policy)
}

// askMultiCall finds out which programs of a domain run others unseen. It is an error when there are some and the rules don't permit it.
func (r *run) askMultiCall(ctx context.Context, domain *sandbox.Domain) error {
	limited, cancel := context.WithTimeoutCause(ctx, askLimit, Stop{Reason: result.TimedOut, Kill: true})
	defer cancel()
	unheld, err := domain.AskMultiCall(func(d *sandbox.Domain, argv []string) result.Outcome { return r.ask(limited, d, argv) })
	if stopped := context.Cause(ctx); stopped != nil {
		stop := StopCause(stopped)
		return failed(stop.Reason, stop.Message)
	}
	if err != nil || len(unheld) == 0 || r.cmd.Rules.Programs.AllowMultiCall {
		return err
	}
	return &failure{result.Outcome{
		Reason: result.IsolationUnavailable, Message: unheldMessage(r.cmd.Rules.Policy, unheld), Isolation: domain.Isolation(),
	}}
}

// ask runs a question to a program: held by its domain, without a network, as the command's user, and with nothing of the
// command's but PATH. Nobody sees its output.
func (r *run) ask(ctx context.Context, d *sandbox.Domain, argv []string) result.Outcome {
	defer d.Close()
	if err := context.Cause(ctx); err != nil {
		return result.Outcome{Reason: StopCause(err).Reason}
	}
	cmd := Command{
		Argv: argv, Env: []string{"PATH=" + Variable(r.cmd.Env, "PATH")}, Dir: "/", Bounds: spec.Bounds{MaxBytesPerStream: maxAnswer, DenyNetwork: true},
	}
	return Capture(&cmd, func(pipes *Pipes) result.Outcome {
		question := newRun(cmd, pipes, r.children)
		question.domain = d
		if err := question.start(ctx); err != nil {
			return startFailure(err)
		}
		question.supervise(ctx)
		return question.outcome()
	})
}
