package sessions

import (
	"context"
	"errors"
	"fmt"
	"sync"

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

// sessionChange is a command that requests a change of sessions.
type sessionChange struct {
	// field of the spec that is set, or else cleared: a session that doesn't have it doesn't change then.
	field string
	set   bool
	// requested and done are what the command prints.
	requested, done string
	goal            sessionGoal
	waitFlags
	formats *cli.Formats
}

// newSessionChanges are the commands that suspend, resume and end sessions.
func newSessionChanges(c *cli.CLI) []*cobra.Command {
	return []*cobra.Command{
		newSessionChange(c, &sessionChange{field: "suspend", set: true, requested: "suspension requested", done: "suspended", goal: sessionGoal{
			text:    "suspended",
			reached: func(s *v1alpha1.ToolSession) bool { return s.Status.Phase == v1alpha1.SessionSuspended && isCurrent(s) },
		}}, &cobra.Command{Use: "suspend NAME...", Short: "Delete the pods of sessions and keep their files", Long: sessionSuspendLong}),
		newSessionChange(c, &sessionChange{field: "suspend", requested: "resumption requested", done: "resumed", goal: sessionGoal{
			text:    "ready",
			reached: func(s *v1alpha1.ToolSession) bool { return readyGoal.reached(s) || isIdle(s) },
		}}, &cobra.Command{Use: "resume NAME...", Short: "Give suspended sessions a pod again", Long: sessionResumeLong}),
		newSessionChange(c, &sessionChange{field: "end", set: true, requested: "end requested", done: "ended", goal: sessionGoal{
			text: "ended", isEnd: true,
			reached: func(s *v1alpha1.ToolSession) bool { return s.Status.Phase == v1alpha1.SessionEnded },
		}}, &cobra.Command{Use: "end NAME...", Aliases: []string{"stop"}, Short: "End sessions and delete their files", Long: sessionEndLong}),
	}
}

// isIdle reports whether a session is suspended only because it had no call.
func isIdle(s *v1alpha1.ToolSession) bool {
	return s.Status.Phase == v1alpha1.SessionSuspended && !s.Spec.Suspend && isCurrent(s)
}

// newSessionChange completes the command for a change.
func newSessionChange(c *cli.CLI, r *sessionChange, command *cobra.Command) *cobra.Command {
	r.formats = cli.NewFormats()
	r.goal.hint = "the request stands; to see how far it is, run kubectl toolcall session describe %s"
	command.Long += "\n\nThe command waits until that is done. Ctrl-C stops the waiting; the request stands. -o prints the sessions as they are\nthen."
	command.Example = "  kubectl toolcall session " + command.Name() + " dev"
	command.Args = cli.RequireSessions
	command.ValidArgsFunction = c.CompleteArguments(-1, cli.ListSessions)
	command.RunE = c.Connected(r.run)
	r.add(command, "the sessions are "+r.goal.text)
	return r.formats.Add(command)
}

// run requests the change of all sessions, also after one that fails, and then waits for each.
func (r *sessionChange) run(ctx context.Context, c *cli.Cluster, names []string) error {
	ctx, release := cli.EndedBySignals(ctx)
	defer release()
	var requested []*v1alpha1.ToolSession
	var failed []error
	for _, name := range names {
		session, err := r.request(ctx, c, name)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		requested = append(requested, session)
	}
	// The timeout doesn't cover the requests: cut off, their outcome is unknown.
	ctx, cancel := cli.Within(ctx, r.timeout)
	defer cancel()
	c.ErrOut = &cli.LockedWriter{Mu: &sync.Mutex{}, Out: c.ErrOut}
	wait := func(i int) (*v1alpha1.ToolSession, error) { return r.wait(ctx, c, requested[i]) }
	for session, err := range cli.InOrder(len(requested), wait) {
		if err == nil {
			err = r.formats.Report(c.Out, session, r.said(session))
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// request requests the change of a session, and returns the session with it.
func (r *sessionChange) request(ctx context.Context, c *cli.Cluster, name string) (*v1alpha1.ToolSession, error) {
	value := map[bool]string{true: "true", false: "null"}[r.set]
	patch := fmt.Appendf(nil, `{"spec":{%q:%s}}`, r.field, value)
	session := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
	if err := c.Client.Patch(ctx, session, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return nil, c.Explain("patch", "toolsessions", "session "+name, err)
	}
	return session, nil
}

// wait waits for a requested change, unless the flags say not to.
func (r *sessionChange) wait(ctx context.Context, c *cli.Cluster, session *v1alpha1.ToolSession) (got *v1alpha1.ToolSession, err error) {
	isOver := func(s *v1alpha1.ToolSession) bool { return s.Status.Phase == v1alpha1.SessionEnded && !r.goal.isEnd }
	got = session
	if !r.detach && !isOver(session) {
		if got, err = waitForSession(ctx, c, session, r.goal, &r.waitFlags); err != nil {
			return nil, err
		}
	}
	if isOver(got) {
		return nil, fmt.Errorf("session %s has ended (%s): it can't be %s", session.Name, calls.EndOf(got), r.done)
	}
	return got, nil
}

// said is what came of a change.
func (r *sessionChange) said(session *v1alpha1.ToolSession) string {
	switch {
	case r.detach:
		return r.requested
	case !r.set && isIdle(session):
		return "suspended because it was idle: its next call resumes it"
	default:
		return r.done
	}
}
