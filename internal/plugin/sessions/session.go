// Package sessions has the commands about sessions.
package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

// Commands are the commands about sessions.
func Commands(c *cli.CLI) []*cobra.Command { return []*cobra.Command{newSession(c)} }

const sessionLong = `Start, use and end sessions.

A session is one caller's trust domain. Calls of one session can read each other's files; calls of different sessions,
and calls without one, share nothing.

The calls of a session share a pod: the workspace, /tmp and the home directory stay from call to call. Variables, the
directory and processes don't. Calls run one after the other unless the session allows more. A session without a call for
15 minutes is suspended if its workspace is on a volume, and ends otherwise; start has flags for all of that.`

const sessionExample = `  kubectl toolcall session start dev
  kubectl toolcall run --session dev -- git clone https://git.example/repo
  kubectl toolcall session exec dev --shell 'cd repo && make test'
  kubectl toolcall session shell dev
  kubectl toolcall session end dev`

func newSession(c *cli.CLI) *cobra.Command {
	command := &cobra.Command{
		Use:     "session",
		Aliases: []string{"sessions"},
		Short:   "Start, use and end sessions, whose calls share files",
		Long:    sessionLong,
		Example: sessionExample,
	}
	return cli.Group(command, append([]*cobra.Command{
		newSessionStart(c), newSessionList(c), newSessionDescribe(c), newSessionExec(c), newSessionShell(c),
	}, newSessionChanges(c)...)...)
}

// waitFlags are the flags of the commands that wait for a session.
type waitFlags struct {
	detach  bool
	quiet   bool
	timeout time.Duration
}

func (f *waitFlags) add(command *cobra.Command, state string) {
	flags := command.Flags()
	flags.BoolVar(&f.detach, "detach", false, "don't wait until "+state)
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print no progress messages and no hints")
	cli.AddTimeoutFlag(command, &f.timeout, "how long to wait, e.g. 5m")
}

// sessionGoal is the state of a session that a command waits for.
type sessionGoal struct {
	// text completes "session NAME was not …".
	text string
	// reached reports whether the session is in that state. An end that isn't the goal, by isEnd, ends the wait too.
	reached func(*v1alpha1.ToolSession) bool
	isEnd   bool
	// hint says what to do when the wait ends early, about the session NAME in NAMESPACE.
	hint string
}

// waitForSession waits until the session has reached the goal, and shows what it waits for. A session that is deleted has ended.
func waitForSession(ctx context.Context, c *cli.Cluster, session *v1alpha1.ToolSession, goal sessionGoal, f *waitFlags) (*v1alpha1.ToolSession, error) {
	p := cli.NewProgress(c.ErrOut, f.quiet, cli.ProgressDelay)
	defer p.Stop()
	p.Set(pendingSession(session))
	last := session
	got, err := c.Follow().WaitSession(ctx, session, follow.SessionWatcher{
		Until: func(s *v1alpha1.ToolSession) bool {
			last = s
			if goal.reached(s) {
				return true
			}
			p.Set(pendingSession(s))
			return s.Status.Phase == v1alpha1.SessionEnded
		},
		Notice: func(text string) { c.Note(false, "note: %s", text) },
	})
	switch {
	case errors.Is(err, follow.ErrSessionDeleted) && goal.isEnd:
		return last, nil
	case errors.Is(err, follow.ErrSessionDeleted):
		return nil, fmt.Errorf("session %s was deleted before it was %s", session.Name, goal.text)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("session %s was not %s within --timeout %s (%s): %s", last.Name, goal.text, f.timeout, stateOf(last), hintOn(last, goal))
	case errors.Is(err, context.Canceled):
		return nil, &cli.ExitError{Code: cli.CodeCancelled, Err: fmt.Errorf("stopped waiting before session %s was %s (%s): %s", last.Name, goal.text, stateOf(last), hintOn(last, goal))}
	case err != nil:
		return nil, fmt.Errorf("follow session %s: %w", session.Name, err)
	}
	return got, nil
}

func hintOn(session *v1alpha1.ToolSession, goal sessionGoal) string {
	return fmt.Sprintf(goal.hint, session.Name+" -n "+session.Namespace)
}

// isCurrent reports whether the status was made from the session's spec as it is now. Otherwise the phase can be that of
// before a change.
func isCurrent(session *v1alpha1.ToolSession) bool {
	return session.Status.ObservedGeneration >= session.Generation
}

// sessionPhase returns Pending for a session that the operator has not seen yet.
func sessionPhase(session *v1alpha1.ToolSession) string {
	return cmp.Or(string(session.Status.Phase), string(v1alpha1.SessionPending))
}

// stateOf is the phase of a session, and why it is in that phase.
func stateOf(session *v1alpha1.ToolSession) string {
	reason, message := sessionReason(session)
	text := sessionPhase(session)
	if reason != "" {
		text += ", " + reason
	}
	if message != "" {
		text += ": " + message
	}
	return text
}

// sessionReason is why a session is in its phase, from the status or else the condition Ready.
func sessionReason(session *v1alpha1.ToolSession) (reason, message string) {
	if s := &session.Status; s.Reason != "" || s.Message != "" {
		return s.Reason, s.Message
	}
	ready := meta.FindStatusCondition(session.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return "", ""
	}
	return ready.Reason, ready.Message
}

// pendingSession says what a command waits for that follows a session.
func pendingSession(session *v1alpha1.ToolSession) string {
	reason, message := sessionReason(session)
	why := cmp.Or(message, reason)
	if session.Status.Phase == "" || !isCurrent(session) || why == "" {
		return fmt.Sprintf("session %s: waiting for the operator", session.Name)
	}
	return fmt.Sprintf("session %s: waiting: %s", session.Name, terminal.SafeLine(why))
}
