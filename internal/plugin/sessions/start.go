package sessions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/calls"
	"toolcall.dev/operator/internal/plugin/cli"
)

const sessionStartLong = `Start a session, wait until it is ready, and print its name.

While it isn't ready, messages say why. Ctrl-C stops the waiting; the session goes on starting. Calls can be created at
once, also with --detach: they wait until the session is ready.

Without --workspace, the files of the session lie in its pod, and are lost with it. With --workspace, they lie on a
PersistentVolumeClaim of that size, except /tmp: the session can be suspended, and survives the loss of its pod.`

const sessionStartExample = `  # In the namespace's default environment, with files that go with the session's pod
  kubectl toolcall session start

  # With a name, in a given environment, with files on a volume
  kubectl toolcall session start dev --environment repo --workspace 10Gi

  # For a script
  session=$(kubectl toolcall session start --quiet) && kubectl toolcall run --session "$session" -- make test`

// sessionStartOptions are the flags of session start.
type sessionStartOptions struct {
	waitFlags
	// session is what the flags say of it. volume is that of its files; without a size there is none.
	session v1alpha1.ToolSession
	volume  v1alpha1.SessionWorkspace
	dryRun  cli.DryRun
}

func newSessionStart(c *cli.CLI) *cobra.Command {
	o := &sessionStartOptions{dryRun: cli.DryRun{Formats: cli.NewFormats()}}
	command := &cobra.Command{
		Use:     "start [NAME]",
		Aliases: []string{"create"},
		Short:   "Start a session and wait until it is ready",
		Long:    sessionStartLong,
		Example: sessionStartExample,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return errors.New("specify at most one name: to run a program in the session, use kubectl toolcall session exec NAME -- PROGRAM")
			case slices.Contains(args, ""):
				return errors.New("the name is empty: give a name, or leave it out for a generated one")
			}
			return nil
		},
		RunE: c.Connected(o.run),
	}
	o.addFlags(command, c)
	return command
}

func (o *sessionStartOptions) addFlags(command *cobra.Command, c *cli.CLI) {
	flags, spec := command.Flags(), &o.session.Spec
	cli.AddReferenceFlag(command, &spec.EnvironmentRef, "environment", "ExecutionEnvironment of the session (default: the namespace's default environment)", c.Complete(cli.ListEnvironments))
	cli.AddReferenceFlag(command, &spec.SkillRef, "skill", "Skill to take variables from", c.Complete(cli.ListSkills))
	flags.StringVarP(&spec.WorkingDir, "working-dir", "w", "", "directory that calls start in which set none")
	cli.AddVariableFlag(command, &spec.Env, "environment variable of all calls as NAME=VALUE; can be repeated")
	flags.Func("workspace", "put the files on a volume of this size, e.g. 10Gi", cli.Parsed(o.setSize))
	cli.AddNameFlag(command, "storage-class", "with --workspace: StorageClass of the volume (default: the cluster's default class)", cli.CompleteFrom(),
		func(name string) { o.volume.StorageClassName = &name })
	cli.AddChoice(command, (*string)(&o.volume.Retain), "retain", "", "with --workspace: Delete the volume with the session, or Keep it (default Delete)",
		string(v1alpha1.RetainDelete), string(v1alpha1.RetainKeep))
	cli.AddSecondsFlag(command, &spec.IdleTimeoutSeconds, "idle-timeout", "suspend the session, or end it without --workspace, after this long without a call; 0 means never (default 15m)", 0)
	cli.AddSecondsFlag(command, &spec.MaxLifetimeSeconds, "max-lifetime", "end the session this long after its creation (default 8h)", 0)
	cli.AddSecondsFlag(command, &spec.TTLSecondsAfterEnded, "ttl", "how long to keep the ended session, e.g. 10m (default 1h)", 0)
	addNumberFlag(command, &spec.MaxConcurrentCalls, "max-concurrent-calls", "how many calls may run at the same time, 1 to 16 (default 1)")
	addNumberFlag(command, &spec.MaxCalls, "max-calls", "end the session after this many calls (default 10000)")
	flags.StringToStringVarP(&o.session.Labels, "labels", "l", nil, "labels to set on the session, e.g. team=search")
	o.waitFlags.add(command, "the session is ready")
	o.dryRun.Add(command, "session", &o.detach)
}

// addNumberFlag adds a flag for a number, whose bounds the API server checks.
func addNumberFlag(command *cobra.Command, to **int32, flag, usage string) {
	command.Flags().Func(flag, usage, cli.Parsed(func(text string) error {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return fmt.Errorf("--%s %q: must be a whole number", flag, text)
		}
		*to = ptr.To(int32(n))
		return nil
	}))
}

func (o *sessionStartOptions) setSize(text string) error {
	size, err := resource.ParseQuantity(text)
	if err != nil || size.Sign() <= 0 {
		return fmt.Errorf("--workspace %q: must be a size, for example 10Gi", text)
	}
	o.volume.Size = size
	return nil
}

func (o *sessionStartOptions) run(ctx context.Context, c *cli.Cluster, args []string) error {
	session, err := o.build(args)
	if err != nil {
		return err
	}
	session.Namespace = c.Namespace
	if o.dryRun.Mode == "server" {
		if session, err = c.DryRun().CreateSession(ctx, session); err != nil {
			return err
		}
	}
	if o.dryRun.Mode != "none" {
		return o.dryRun.PrintInstead(c.Out, session)
	}
	ctx, release := cli.EndedBySignals(ctx)
	defer release()
	created, err := c.Follow().CreateSession(ctx, session)
	if err != nil {
		return err
	}
	if !o.detach {
		if created, err = o.waitReady(ctx, c, created); err != nil {
			return err
		}
	}
	return o.report(c, created)
}

// build builds the session from the flags. The API server sets and checks the limits that they don't have.
func (o *sessionStartOptions) build(args []string) (*v1alpha1.ToolSession, error) {
	session := o.session.DeepCopy()
	session.GenerateName = "session-"
	if len(args) > 0 {
		session.Name, session.GenerateName = args[0], ""
	}
	switch {
	case !o.volume.Size.IsZero():
		session.Spec.Workspace = &o.volume
	case o.volume.StorageClassName != nil || o.volume.Retain != "":
		return nil, errors.New("--storage-class and --retain can only be used with --workspace SIZE: without it, the files lie in the session's pod")
	}
	return session, cli.CheckText(strconv.Quote(session.Spec.WorkingDir), session.Spec.WorkingDir)
}

// readyGoal is a session that takes calls, after every change of its spec so far.
var readyGoal = sessionGoal{
	text:    "ready",
	reached: func(s *v1alpha1.ToolSession) bool { return s.Status.Phase == v1alpha1.SessionReady && isCurrent(s) },
	hint:    "it goes on starting; to see how far it is, run kubectl toolcall session describe %[1]s, and to end it, kubectl toolcall session end %[1]s",
}

func (o *sessionStartOptions) waitReady(ctx context.Context, c *cli.Cluster, session *v1alpha1.ToolSession) (*v1alpha1.ToolSession, error) {
	ctx, cancel := cli.Within(ctx, o.timeout)
	defer cancel()
	got, err := waitForSession(ctx, c, session, readyGoal, &o.waitFlags)
	switch {
	case err != nil:
		return nil, err
	case got.Status.Phase == v1alpha1.SessionEnded:
		return nil, fmt.Errorf("session %s ended before it was ready (%s)", got.Name, calls.EndOf(got))
	default:
		return got, nil
	}
}

// report prints the name of the session, and how to use it.
func (o *sessionStartOptions) report(c *cli.Cluster, session *v1alpha1.ToolSession) error {
	if o.dryRun.IsObject() {
		return o.dryRun.Print(c.Out, session)
	}
	if _, err := fmt.Fprintln(c.Out, session.Name); err != nil {
		return err
	}
	name := session.Name + " -n " + session.Namespace
	c.Note(o.quiet, "session %s is %s. To use it, run:", session.Name, readiness(session))
	c.Note(o.quiet, "  kubectl toolcall session exec %s -- PROGRAM", name)
	c.Note(o.quiet, "  kubectl toolcall session shell %s", name)
	c.Note(o.quiet, "  kubectl toolcall session end %s", name)
	return nil
}

// readiness says how soon a session was ready, or that calls wait until it is.
func readiness(session *v1alpha1.ToolSession) string {
	if session.Status.Phase != v1alpha1.SessionReady {
		return "starting: calls wait until it is ready"
	}
	if t := session.Status.Timings; t != nil && t.ReadyMilliseconds != nil {
		return "ready after " + cli.FormatMilliseconds(*t.ReadyMilliseconds)
	}
	return "ready"
}
