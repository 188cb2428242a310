package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/calls"
	"toolcall.dev/operator/internal/plugin/cli"
)

const sessionSuspendLong = `Suspend sessions: running calls are cancelled, background calls too, and the pod is deleted. The files on the volume stay,
/tmp doesn't. New calls wait until the session is resumed. A session without a workspace on a volume can't be suspended.`

const sessionResumeLong = `Resume suspended sessions: they get a new pod, and the calls that wait in them start. A session that was suspended because
it was idle needs no resume: its next call resumes it.`

const sessionEndLong = `End sessions for good: running calls are cancelled, and calls that wait fail. The files are deleted, except on a volume
with --retain Keep. A session can't be started again.`

// sessionChange is a change of sessions that a command requests.
type sessionChange struct {
	// field of the spec that is set, or else cleared: a session that doesn't have it doesn't change then.
	field string
	set   bool
	// requested and done are what the command prints.
	requested, done string
	goal            sessionGoal
}

func newSessionSuspend(c *cli.CLI) *cobra.Command {
	return newSessionChange(c, &sessionChange{
		field: "suspend", set: true, requested: "suspension requested", done: "suspended",
		goal: sessionGoal{
			text:    "suspended",
			reached: func(s *v1alpha1.ToolSession) bool { return s.Status.Phase == v1alpha1.SessionSuspended && isCurrent(s) },
			hint:    "the request stands; to see how far it is, run kubectl toolcall session describe %s",
		},
	}, &cobra.Command{Use: "suspend NAME...", Short: "Delete the pods of sessions and keep their files", Long: sessionSuspendLong})
}

func newSessionResume(c *cli.CLI) *cobra.Command {
	return newSessionChange(c, &sessionChange{
		field: "suspend", set: false, requested: "resumption requested", done: "resumed",
		goal: sessionGoal{
			text:    "ready",
			reached: func(s *v1alpha1.ToolSession) bool { return readyGoal.reached(s) || isIdle(s) },
			hint:    "the request stands; to see how far it is, run kubectl toolcall session describe %s",
		},
	}, &cobra.Command{Use: "resume NAME...", Short: "Give suspended sessions a pod again", Long: sessionResumeLong})
}

func newSessionEnd(c *cli.CLI) *cobra.Command {
	return newSessionChange(c, &sessionChange{
		field: "end", set: true, requested: "end requested", done: "ended",
		goal: sessionGoal{
			text:    "ended",
			reached: func(s *v1alpha1.ToolSession) bool { return s.Status.Phase == v1alpha1.SessionEnded },
			hint:    "the request stands; to see how far it is, run kubectl toolcall session describe %s",
		},
	}, &cobra.Command{Use: "end NAME...", Aliases: []string{"stop"}, Short: "End sessions and delete their files", Long: sessionEndLong})
}

// isIdle reports whether a session is suspended only because it had no call.
func isIdle(s *v1alpha1.ToolSession) bool {
	return s.Status.Phase == v1alpha1.SessionSuspended && !s.Spec.Suspend && isCurrent(s)
}

// newSessionChange completes the command for a change.
func newSessionChange(c *cli.CLI, change *sessionChange, command *cobra.Command) *cobra.Command {
	f, formats := &waitFlags{}, cli.NewChangeFormats()
	command.Long += "\n\nThe command waits until that is done. Ctrl-C stops the waiting; the request stands. -o prints the sessions as they are\nthen."
	command.Example = "  kubectl toolcall session " + command.Name() + " dev"
	command.Args, command.ValidArgsFunction = cli.RequireSessions, c.CompleteArguments(-1, cli.ListSessions)
	command.RunE = func(command *cobra.Command, args []string) error {
		if err := errors.Join(f.validate(), formats.Validate()); err != nil {
			return err
		}
		ctx, release := cli.EndedBySignals(command.Context())
		defer release()
		return (&sessionChanging{c, change, f, formats}).run(ctx, args)
	}
	f.add(command, "the sessions are "+change.goal.text)
	formats.Add(command)
	return command
}

// sessionChanging is one run of a command for a change.
type sessionChanging struct {
	*cli.CLI
	change  *sessionChange
	flags   *waitFlags
	formats *cli.ChangeFormats
}

// run requests the change of all sessions, also after one that fails, and then waits for each.
func (c *sessionChanging) run(ctx context.Context, names []string) error {
	cluster, err := c.Connect()
	if err != nil {
		return err
	}
	var requested []*v1alpha1.ToolSession
	var failed []error
	for _, name := range names {
		session, err := patchSession(ctx, cluster, name, c.change)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		requested = append(requested, session)
	}
	ctx, cancel := c.flags.waiting(ctx)
	defer cancel()
	for _, session := range requested {
		if err := c.finish(ctx, cluster, session); err != nil {
			failed = append(failed, err)
		}
	}
	joined := errors.Join(failed...)
	var exit *cli.ExitError
	if errors.As(joined, &exit) {
		return &cli.ExitError{Code: exit.Code, Err: joined}
	}
	return joined
}

// patchSession requests a change, and returns the session with it.
func patchSession(ctx context.Context, c *cli.Cluster, name string, change *sessionChange) (*v1alpha1.ToolSession, error) {
	var value any
	if change.set {
		value = true
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{change.field: value}})
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	session := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
	if err := c.Client.Patch(ctx, session, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return nil, c.SessionError("patch", "session "+name, err)
	}
	return session, nil
}

// finish waits for a requested change, and prints what came of it.
func (c *sessionChanging) finish(ctx context.Context, cluster *cli.Cluster, session *v1alpha1.ToolSession) error {
	change, name, ending := c.change, session.Name, c.change.field == "end"
	if c.flags.detach && (ending || session.Status.Phase != v1alpha1.SessionEnded) {
		return c.formats.Report(c.Out, session, change.requested)
	}
	got, err := waitForSession(ctx, c.CLI, cluster, session, change.goal, c.flags)
	switch {
	case err != nil:
		return err
	case ending && got == nil:
		return c.formats.Report(c.Out, session, change.done)
	case ending:
		return c.formats.Report(c.Out, got, change.done)
	case got == nil:
		return fmt.Errorf("session %s was deleted before it was %s", name, change.goal.text)
	case got.Status.Phase == v1alpha1.SessionEnded:
		return fmt.Errorf("session %s has ended (%s): it can't be %s", name, calls.EndOf(got), change.done)
	case !change.set && isIdle(got):
		return c.formats.Report(c.Out, got, "suspended because it was idle: its next call resumes it")
	default:
		return c.formats.Report(c.Out, got, change.done)
	}
}
