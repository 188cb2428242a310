package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/plugin/terminal"
)

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

func newSession(c *cli) *cobra.Command {
	command := &cobra.Command{
		Use:     "session",
		Aliases: []string{"sessions"},
		Short:   "Start, use and end sessions, whose calls share files",
		Long:    sessionLong,
		Example: sessionExample,
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(
		newSessionStart(c), newSessionList(c), newSessionDescribe(c), newSessionExec(c), newSessionShell(c),
		newSessionSuspend(c), newSessionResume(c), newSessionEnd(c),
	)
	return command
}

// getSession reads one session.
func (c *cluster) getSession(ctx context.Context, name string) (*v1alpha1.ToolSession, error) {
	session := &v1alpha1.ToolSession{}
	if err := c.client.Get(ctx, c.key(name), session); err != nil {
		return nil, c.sessionError("get", "session "+name, err)
	}
	session.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolSession"))
	return session, nil
}

// sessionError adds what the user can do to the error of a request about sessions.
func (c *cluster) sessionError(verb, what string, err error) error {
	switch {
	case follow.NotInstalled(err):
		return fmt.Errorf("%s: this cluster has no ToolSession kind: install an operator that has sessions, or choose another cluster with --context: %w", what, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s not found in namespace %q: \"kubectl toolcall session list\" lists the sessions, -n selects another namespace: %w", what, c.namespace, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: you need permission to %s toolsessions in this namespace: the ClusterRole toolcall-user grants it: %w", what, verb, err)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

// joinSession makes a call one of the session that it names, and of no session of the same name that is made later. It
// refuses a session that takes no calls any more, so that nothing is created for it.
func (c *cli) joinSession(ctx context.Context, cluster *cluster, call *v1alpha1.ToolCall, quiet bool) error {
	ref := call.Spec.SessionRef
	if ref == nil {
		return nil
	}
	session, err := cluster.getSession(ctx, ref.Name)
	if err != nil {
		return err
	}
	if err := takesCalls(session); err != nil {
		return err
	}
	if session.Spec.Suspend && !quiet {
		fmt.Fprintf(c.ErrOut, "session %s is suspended: the call waits until you run kubectl toolcall session resume %s -n %s\n", session.Name, session.Name, session.Namespace)
	}
	*ref = *referenceTo(session)
	return nil
}

// referenceTo refers to this very session.
func referenceTo(session *v1alpha1.ToolSession) *v1alpha1.SessionReference {
	return &v1alpha1.SessionReference{Name: session.Name, UID: string(session.UID)}
}

// takesCalls says why a session takes no calls any more.
func takesCalls(session *v1alpha1.ToolSession) error {
	const hint = "start another one with kubectl toolcall session start, and run the call there"
	switch {
	case session.TakesCalls():
		return nil
	case session.Status.Phase == v1alpha1.SessionEnded:
		return fmt.Errorf("session %s has ended (%s): %s", session.Name, endOf(session), hint)
	default:
		return fmt.Errorf("session %s is being ended: %s", session.Name, hint)
	}
}

// endOf is why a session ended: the reason, and the message if there is one.
func endOf(session *v1alpha1.ToolSession) string {
	if session.Status.Message == "" {
		return session.Status.Reason
	}
	return session.Status.Reason + ": " + session.Status.Message
}

// note prints a message about what a command did.
func (c *cli) note(quiet bool, format string, args ...any) {
	if !quiet {
		fmt.Fprintln(c.ErrOut, terminal.Safe(fmt.Sprintf(format, args...)))
	}
}
