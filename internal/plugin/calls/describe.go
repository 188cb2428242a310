package calls

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/plugin/cli"
)

const describeLong = `Show the details of a call: its outcome, action, environment, variables (names and sources, never values), the programs
that it executed and that were refused to it, which walls held, conditions, timings, output and Events. The timeline has a dot for
each part of the time until the call was accepted, a dash until it was started, and # while it ran.

Events need permission to list events in the namespace, which the cluster's own ClusterRole view grants; without it, a line
says so. -o prints the call itself. The exit code is 0 whatever the outcome of the call, and 1 if it can't be read.

On a terminal, control characters in the output appear in visible form, such as ^[ for escape.`

func newDescribe(c *cli.CLI) *cobra.Command {
	formats := cli.NewFormats()
	command := &cobra.Command{
		Use:               "describe NAME",
		Short:             "Show the details of a call",
		Long:              describeLong,
		Example:           "  kubectl toolcall describe nightly\n  kubectl toolcall describe nightly --raw",
		Args:              cli.RequireCall,
		ValidArgsFunction: c.CompleteArguments(1, cli.ListCalls),
		RunE: c.Connected(func(ctx context.Context, cluster *cli.Cluster, args []string) error {
			call, err := cluster.GetCall(ctx, args[0])
			if err != nil {
				return err
			}
			if formats.IsObject() {
				return formats.Print(c.Out, call)
			}
			now := time.Now()
			if err := describeCall(c.Out, call, now); err != nil {
				return err
			}
			return cluster.WriteEvents(ctx, call, now)
		}),
	}
	formats.Add(command)
	c.AddRawFlag(command)
	return command
}

func describeCall(out io.Writer, call *v1alpha1.ToolCall, now time.Time) error {
	d := cli.NewDescription(out)
	d.Section("", callFields(call, now))
	d.Section("Action", actionFields(call))
	d.Section("Approval", cli.ApprovalFields(call.Status.Approval, now))
	d.Section("Environment", EnvironmentFields(call.Status.Environment, call.Spec.SkillRef))
	d.Section("Programs", programFields(&call.Status))
	d.Section("Network", networkFields(call))
	d.Section("Redactions", redactionFields(call.Status.Redactions))
	d.Section("Isolation", isolationFields(call.Status.Isolation))
	d.Section("Conditions", cli.ConditionFields(call.Status.Conditions, callConditions...))
	d.Section("Timings", timingFields(call, now))
	if err := d.Flush(); err != nil {
		return err
	}
	if streams := call.Status.Streams; streams != nil {
		writeStream(out, "Standard output", call.Status.Stdout, &streams.Stdout)
		writeStream(out, "Standard error", call.Status.Stderr, &streams.Stderr)
	}
	return nil
}

func callFields(call *v1alpha1.ToolCall, now time.Time) []cli.Field {
	s := &call.Status
	phase := PhaseOf(call)
	if s.Reason != "" {
		phase += " (" + s.Reason + ")"
	}
	retry := ""
	if s.RetrySafe != nil {
		retry = map[bool]string{true: "yes, the command never started", false: "no, the command may have run"}[*s.RetrySafe]
	}
	return []cli.Field{
		{"Name", call.Name}, {"Namespace", call.Namespace}, {"Age", duration.HumanDuration(now.Sub(call.CreationTimestamp.Time))},
		{"Requested by", call.RequesterName()}, {"Phase", phase}, {"Message", s.Message},
		{"Documentation", aboutFailure(s)},
		{"Exit code", cli.Optional("%d", s.ExitCode)},
		{"Signal", s.Signal},
		{"Cancellation", map[bool]string{true: "requested"}[call.Spec.Cancel]},
		{"Safe to retry", retry},
		{"Session", sessionOf(call)}, {"Rerun of", call.Annotations[annotationRerunOf]},
	}
}

// sessionOf is the session that a call runs in, and where in it.
func sessionOf(call *v1alpha1.ToolCall) string {
	if call.Spec.SessionRef == nil {
		return ""
	}
	text := call.Spec.SessionRef.Name
	if call.Spec.Background {
		text += ", in the background"
	}
	if s := call.Status.Session; s != nil && s.Incarnation > 0 {
		text += fmt.Sprintf(", in its pod number %d", s.Incarnation)
	}
	return text
}

func actionFields(call *v1alpha1.ToolCall) []cli.Field {
	var fields []cli.Field
	if action := call.Status.Action; action != nil {
		fields = append(fields, cli.Field{"Type", string(action.Type) + " (tool " + action.Tool + ")"})
	}
	spec := &call.Spec
	switch {
	case spec.Structured != nil:
		fields = append(fields, cli.Field{"Command", strings.TrimSpace(spec.Structured.Binary + " " + cli.Quoted(spec.Structured.Args))})
	case spec.Shell != nil:
		fields = append(fields, cli.Field{"Command", spec.Shell.Command})
	case spec.Code != nil:
		fields = append(fields, cli.Field{"Code", fmt.Sprintf("%s, %d bytes", spec.Code.Language, len(spec.Code.Source))})
	case spec.File != nil:
		fields = append(fields, fileFields(spec.File)...)
		if reached := call.Status.File; reached != nil {
			fields = append(fields, cli.Field{"Reached", reached.Path})
		}
	case spec.Tool != nil && spec.Tool.Arguments != nil:
		fields = append(fields, cli.Field{"Tool", spec.Tool.Name + " " + string(spec.Tool.Arguments.Raw)})
	}
	if spec.Stdin != "" {
		fields = append(fields, cli.Field{"Standard input", fmt.Sprintf("%d bytes", len(spec.Stdin))})
	}
	return append(fields,
		cli.Field{"Requested time limit", cli.Optional("%ds", spec.TimeoutSeconds)}, cli.Field{"Time limit", cli.Optional("%ds", call.Status.TimeoutSeconds)},
		cli.Field{"Job", call.Status.Job}, cli.Field{"Pod", call.Status.Pod}, cli.Field{"Node", call.Status.Node})
}

// fileFields are what a file action asks for; its content only as a size.
func fileFields(f *v1alpha1.FileAction) []cli.Field {
	fields := []cli.Field{
		{"File", string(f.Operation) + " " + cli.Quoted([]string{f.Path})}, {"Destination", f.Destination}, {"Pattern", f.Pattern},
	}
	if len(f.Edits) > 0 {
		fields = append(fields, cli.Field{"Edits", fmt.Sprint(len(f.Edits))})
	}
	if content, err := guards.FileContent(f); err == nil && f.Operation == v1alpha1.FileWrite {
		fields = append(fields, cli.Field{"Content", fmt.Sprintf("%d bytes", len(content))})
	}
	return fields
}

func EnvironmentFields(env *v1alpha1.ResolvedEnvironment, skillRef *v1alpha1.LocalReference) []cli.Field {
	if env == nil {
		return nil
	}
	bySource := map[v1alpha1.EnvSource][]string{}
	for _, v := range env.Env {
		bySource[v.Source] = append(bySource[v.Source], v.Name)
	}
	fields := []cli.Field{{"Name", env.Name}, {"Skill", ptr.Deref(skillRef, v1alpha1.LocalReference{}).Name}, {"Directory", env.WorkingDir}}
	if len(env.Env) > 0 {
		fields = append(fields, cli.Field{"Trusted", fmt.Sprint(env.Trusted)})
	}
	for _, source := range sources {
		fields = append(fields, cli.Field{"Variables from " + SourceText[source], strings.Join(bySource[source], ", ")})
	}
	return append(fields, cli.Field{"Removed variables", strings.Join(env.StrippedEnv, ", ")})
}

// sources lists the sources of variables by precedence.
var sources = []v1alpha1.EnvSource{
	v1alpha1.EnvSourceCall, v1alpha1.EnvSourceEnvironment, v1alpha1.EnvSourceSkill, v1alpha1.EnvSourceDefault, v1alpha1.EnvSourceImage,
}

var SourceText = map[v1alpha1.EnvSource]string{
	v1alpha1.EnvSourceCall:        "the call",
	v1alpha1.EnvSourceEnvironment: "the environment",
	v1alpha1.EnvSourceSkill:       "the skill",
	v1alpha1.EnvSourceDefault:     "the default environment",
	v1alpha1.EnvSourceImage:       "the image",
}

// callConditions are the types of conditions in the order in which a call reaches them.
var callConditions = []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionApproved, v1alpha1.ConditionStarted, v1alpha1.ConditionFinished, v1alpha1.ConditionSucceeded}

var PathText = map[v1alpha1.Path]string{
	v1alpha1.PathWarm:    "warm (a pod from the pool)",
	v1alpha1.PathCold:    "cold (a new pod)",
	v1alpha1.PathSession: "session (the session's pod)",
}

func timingFields(call *v1alpha1.ToolCall, now time.Time) []cli.Field {
	fields := []cli.Field{{"Timeline", timeline(call, now)}}
	if t := call.Status.Timings; t != nil {
		fields = append(fields,
			cli.Field{"Accepted after", cli.OptionalDuration(t.AcceptedMilliseconds)}, cli.Field{"Started after", cli.OptionalDuration(t.StartedMilliseconds)},
			cli.Field{"Finished after", cli.OptionalDuration(t.FinishedMilliseconds)}, cli.Field{"Path", PathText[t.Path]})
	}
	start := ""
	if t := call.Status.StartTime; t != nil {
		start = t.UTC().Format(time.RFC3339)
	}
	return append(fields, cli.Field{"Process duration", cli.OptionalDuration(call.Status.DurationMilliseconds)}, cli.Field{"Process start", start},
		cli.Field{"Used", used(call.Status.Usage)})
}

// used is what a call took, as far as that is known.
func used(u *v1alpha1.CallUsage) string {
	if u == nil {
		return ""
	}
	var known []string
	for _, one := range []string{
		cli.Optional("%d ms of processor time", u.CPUMilliseconds), cli.Optional("%d bytes of memory", u.MaxRSSBytes),
		cli.Optional("%d bytes read", u.ReadBytes), cli.Optional("%d bytes written", u.WrittenBytes),
		cli.Optional("%d processes and threads", u.PeakProcesses),
	} {
		if one != "" {
			known = append(known, one)
		}
	}
	return strings.Join(known, ", ")
}

func writeStream(out io.Writer, title, text string, about *v1alpha1.StreamStatus) {
	if about.Bytes == 0 {
		return
	}
	fmt.Fprintf(out, "%s (%d bytes", title, about.Bytes)
	if about.Truncated {
		fmt.Fprint(out, ", truncated")
	}
	if about.InvalidUTF8 {
		fmt.Fprint(out, ", with invalid UTF-8")
	}
	fmt.Fprintf(out, "):\n%s\n", cli.Indent(text, "  "))
}

// timelineWidth is how many characters the timeline of a call has.
const timelineWidth = 40

// timeline draws the time of a call to scale, up to its end or now. A part that took any time has at least one character. There is none
// before the call was accepted.
func timeline(call *v1alpha1.ToolCall, now time.Time) string {
	t := call.Status.Timings
	if t == nil || t.AcceptedMilliseconds == nil {
		return ""
	}
	end := ptr.Deref(t.FinishedMilliseconds, now.Sub(call.CreationTimestamp.Time).Milliseconds())
	accepted, started, waited := max(0, *t.AcceptedMilliseconds), end, "waiting"
	if t.StartedMilliseconds != nil {
		started, waited = *t.StartedMilliseconds, "until started"
	}
	last := "running"
	if t.FinishedMilliseconds != nil {
		// Its process ran for less: the result has to come back.
		last = "until finished"
	}
	times := []int64{accepted, max(0, started-accepted), max(0, end-started)}
	total := 0.0
	for _, milliseconds := range times {
		total += float64(milliseconds)
	}
	bar, legend := "", []string{}
	for i, name := range []string{"until accepted", waited, last} {
		if times[i] > 0 {
			bar += strings.Repeat(".-#"[i:i+1], max(1, int(float64(times[i])/total*timelineWidth)))
			legend = append(legend, cli.FormatMilliseconds(times[i])+" "+name)
		}
	}
	if bar == "" {
		return ""
	}
	return "[" + bar + "] " + strings.Join(legend, ", ")
}
