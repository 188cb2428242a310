package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

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
	environment, skill string
	workingDir         string
	env                []string
	labels             map[string]string
	workspace          string
	storageClass       string
	retain             string
	idleTimeout        time.Duration
	maxLifetime        time.Duration
	ttl                time.Duration
	concurrent, calls  int32
	dryRun             cli.DryRun
	// changed reports whether the user set a flag.
	changed func(flag string) bool
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
			if len(args) > 1 {
				return errors.New("specify at most one name: to run a program in the session, use kubectl toolcall session exec NAME -- PROGRAM")
			}
			return nil
		},
		RunE: c.Connected(o.run),
	}
	o.addFlags(command, c)
	return command
}

func (o *sessionStartOptions) addFlags(command *cobra.Command, c *cli.CLI) {
	flags := command.Flags()
	cli.AddFlag(command, &o.environment, "environment", "", "ExecutionEnvironment of the session (default: the namespace's default environment)", c.Complete(cli.ListEnvironments))
	cli.AddFlag(command, &o.skill, "skill", "", "Skill to take variables from", c.Complete(cli.ListSkills))
	flags.StringVarP(&o.workingDir, "working-dir", "w", "", "directory that calls start in which set none")
	cli.AddVariableFlag(command, &o.env, "environment variable of all calls as NAME=VALUE; can be repeated")
	flags.StringVar(&o.workspace, "workspace", "", "put the files on a volume of this size, e.g. 10Gi")
	flags.StringVar(&o.storageClass, "storage-class", "", "with --workspace: StorageClass of the volume (default: the cluster's default class)")
	cli.AddFlag(command, &o.retain, "retain", "", "with --workspace: Delete the volume with the session, or Keep it (default Delete)",
		cli.CompleteFrom(string(v1alpha1.RetainDelete), string(v1alpha1.RetainKeep)))
	flags.DurationVar(&o.idleTimeout, "idle-timeout", 0, "suspend the session, or end it without --workspace, after this long without a call; 0 means never (default 15m)")
	flags.DurationVar(&o.maxLifetime, "max-lifetime", 0, "end the session this long after its creation (default 8h)")
	flags.DurationVar(&o.ttl, "ttl", 0, "how long to keep the ended session, e.g. 10m (default 1h)")
	flags.Int32Var(&o.concurrent, "max-concurrent-calls", 0, "how many calls may run at the same time, 1 to 16 (default 1)")
	flags.Int32Var(&o.calls, "max-calls", 0, "end the session after this many calls (default 10000)")
	flags.StringToStringVarP(&o.labels, "labels", "l", nil, "labels to set on the session, e.g. team=search")
	o.waitFlags.add(command, "the session is ready")
	o.dryRun.Add(command, "session", &o.detach)
	o.changed = flags.Changed
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

// build builds the session from the flags.
func (o *sessionStartOptions) build(args []string) (*v1alpha1.ToolSession, error) {
	session := &v1alpha1.ToolSession{}
	session.GenerateName, session.Labels = "session-", o.labels
	if len(args) > 0 && args[0] != "" {
		session.Name, session.GenerateName = args[0], ""
	}
	spec := &session.Spec
	spec.EnvironmentRef, spec.SkillRef, spec.WorkingDir = cli.Reference(o.environment), cli.Reference(o.skill), o.workingDir
	var err error
	if spec.Env, err = cli.Variables(o.env); err != nil {
		return nil, err
	}
	if spec.Workspace, err = o.buildWorkspace(); err != nil {
		return nil, err
	}
	return session, o.setLimits(spec)
}

func (o *sessionStartOptions) buildWorkspace() (*v1alpha1.SessionWorkspace, error) {
	if o.workspace == "" {
		if o.storageClass != "" || o.retain != "" {
			return nil, errors.New("--storage-class and --retain can only be used with --workspace SIZE: without it, the files lie in the session's pod")
		}
		return nil, nil
	}
	size, err := resource.ParseQuantity(o.workspace)
	if err != nil || size.Sign() <= 0 {
		return nil, fmt.Errorf("--workspace %q: must be a size, for example 10Gi", o.workspace)
	}
	workspace := &v1alpha1.SessionWorkspace{Size: size}
	if o.storageClass != "" {
		workspace.StorageClassName = &o.storageClass
	}
	switch workspace.Retain = v1alpha1.RetainMode(o.retain); workspace.Retain {
	case "", v1alpha1.RetainDelete, v1alpha1.RetainKeep:
		return workspace, nil
	default:
		return nil, fmt.Errorf("--retain=%s: must be Delete or Keep", o.retain)
	}
}

// setLimits sets the limits whose flags the user set. The API server sets and checks the others.
func (o *sessionStartOptions) setLimits(spec *v1alpha1.ToolSessionSpec) error {
	if o.changed("max-concurrent-calls") {
		spec.MaxConcurrentCalls = &o.concurrent
	}
	if o.changed("max-calls") {
		spec.MaxCalls = &o.calls
	}
	return cmp.Or(
		cli.SetSeconds(&spec.IdleTimeoutSeconds, "idle-timeout", o.idleTimeout, o.changed),
		cli.SetSeconds(&spec.MaxLifetimeSeconds, "max-lifetime", o.maxLifetime, o.changed),
		cli.SetSeconds(&spec.TTLSecondsAfterEnded, "ttl", o.ttl, o.changed))
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
