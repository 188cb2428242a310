package plugin

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const describeLong = `Show the details of a call: its outcome, action, environment, variables (names and sources, never values), the programs
that it executed and that were refused to it, which walls held, conditions, timings, output and Events. The timeline has a dot for
each part of the time until the call was accepted, a dash until it was started, and # while it ran.

Events need permission to list events in the namespace, which the cluster's own ClusterRole view grants; without it, a line
says so. -o prints the call itself. The exit code is 0 whatever the outcome of the call, and 1 if it can't be read.

On a terminal, control characters in the output appear in visible form, such as ^[ for escape.`

func newDescribe(c *cli) *cobra.Command {
	formats := newOutputFormats()
	command := &cobra.Command{
		Use:               "describe NAME",
		Short:             "Show the details of a call",
		Long:              describeLong,
		Example:           "  kubectl toolcall describe nightly\n  kubectl toolcall describe nightly --raw",
		Args:              requireCall,
		ValidArgsFunction: c.completeArguments(1, listCalls),
		RunE: func(command *cobra.Command, args []string) error {
			return c.describe(command.Context(), args[0], &formats)
		},
	}
	formats.add(command)
	c.addRawFlag(command)
	return command
}

func (c *cli) describe(ctx context.Context, name string, formats *outputFormats) error {
	cluster, err := c.connect()
	if err != nil {
		return err
	}
	call, err := cluster.getCall(ctx, name)
	if err != nil {
		return err
	}
	if formats.isObject() {
		return formats.print(c, call, []printable{call})
	}
	now := time.Now()
	if err := describeCall(c.Out, call, now); err != nil {
		return err
	}
	return writeEvents(c.Out, cluster.eventsOf(ctx, call), now)
}

// field is one line of a description.
type field struct{ name, value string }

// section is a part of a description. A section without values isn't shown.
type section struct {
	title  string
	fields []field
}

func describeCall(out io.Writer, call *v1alpha1.ToolCall, now time.Time) error {
	w := newTable(out)
	for _, part := range []section{
		{"", callFields(call, now)}, {"Action", actionFields(call)},
		{"Environment", environmentFields(call.Status.Environment, call.Spec.SkillRef)},
		{"Programs", programFields(&call.Status)}, {"Network", networkFields(call)}, {"Redactions", redactionFields(call.Status.Redactions)},
		{"Isolation", isolationFields(call.Status.Isolation)},
		{"Conditions", conditionFields(call.Status.Conditions, callConditions...)}, {"Timings", timingFields(call, now)},
	} {
		writeSection(w, part)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	writeStream(out, "Standard output", call.Status.Stdout, streamOf(call, true))
	writeStream(out, "Standard error", call.Status.Stderr, streamOf(call, false))
	return nil
}

func writeSection(w io.Writer, part section) {
	prefix := ""
	if part.title != "" {
		prefix = "  "
	}
	titled := part.title == ""
	for _, f := range part.fields {
		if f.value == "" {
			continue
		}
		if !titled {
			fmt.Fprintf(w, "%s:\n", part.title)
			titled = true
		}
		fmt.Fprintf(w, "%s%s:\t%s\n", prefix, f.name, terminal.SafeLine(f.value))
	}
}

func callFields(call *v1alpha1.ToolCall, now time.Time) []field {
	s := &call.Status
	phase := phaseOf(call)
	if s.Reason != "" {
		phase += " (" + s.Reason + ")"
	}
	exit := ""
	if s.ExitCode != nil {
		exit = fmt.Sprint(*s.ExitCode)
	}
	retry := ""
	if s.RetrySafe != nil {
		retry = map[bool]string{true: "yes, the command never started", false: "no, the command may have run"}[*s.RetrySafe]
	}
	return []field{
		{"Name", call.Name},
		{"Namespace", call.Namespace},
		{"Age", duration.HumanDuration(now.Sub(call.CreationTimestamp.Time))},
		{"Requested by", requester(call)},
		{"Phase", phase},
		{"Message", s.Message},
		{"Documentation", aboutFailure(s)},
		{"Exit code", exit},
		{"Signal", s.Signal},
		{"Cancellation", map[bool]string{true: "requested"}[call.Spec.Cancel]},
		{"Safe to retry", retry},
		{"Session", sessionOf(call)},
		{"Rerun of", call.Annotations[annotationRerunOf]},
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

func actionFields(call *v1alpha1.ToolCall) []field {
	var fields []field
	if action := call.Status.Action; action != nil {
		fields = append(fields, field{"Type", string(action.Type) + " (tool " + action.Tool + ")"})
	}
	spec := &call.Spec
	switch {
	case spec.Structured != nil:
		fields = append(fields, field{"Command", strings.TrimSpace(spec.Structured.Binary + " " + quoted(spec.Structured.Args))})
	case spec.Shell != nil:
		fields = append(fields, field{"Command", spec.Shell.Command})
	case spec.Code != nil:
		fields = append(fields, field{"Code", fmt.Sprintf("%s, %d bytes", spec.Code.Language, len(spec.Code.Source))})
	case spec.File != nil:
		fields = append(fields, fileFields(spec.File)...)
		if reached := call.Status.File; reached != nil {
			fields = append(fields, field{"Reached", reached.Path})
		}
	case spec.Tool != nil && spec.Tool.Arguments != nil:
		fields = append(fields, field{"Tool", spec.Tool.Name + " " + string(spec.Tool.Arguments.Raw)})
	}
	if spec.Stdin != "" {
		fields = append(fields, field{"Standard input", fmt.Sprintf("%d bytes", len(spec.Stdin))})
	}
	if spec.TimeoutSeconds != nil {
		fields = append(fields, field{"Requested time limit", fmt.Sprintf("%ds", *spec.TimeoutSeconds)})
	}
	if limit := call.Status.TimeoutSeconds; limit != nil {
		fields = append(fields, field{"Time limit", fmt.Sprintf("%ds", *limit)})
	}
	return append(fields, field{"Job", call.Status.Job}, field{"Pod", call.Status.Pod}, field{"Node", call.Status.Node})
}

// fileFields are what a file action asks for; its content only as a size.
func fileFields(f *v1alpha1.FileAction) []field {
	fields := []field{{"File", string(f.Operation) + " " + quoted([]string{f.Path})}}
	if f.Destination != "" {
		fields = append(fields, field{"Destination", f.Destination})
	}
	if f.Pattern != "" {
		fields = append(fields, field{"Pattern", f.Pattern})
	}
	if len(f.Edits) > 0 {
		fields = append(fields, field{"Edits", fmt.Sprint(len(f.Edits))})
	}
	if content, err := guards.FileContent(f); err == nil && f.Operation == v1alpha1.FileWrite {
		fields = append(fields, field{"Content", fmt.Sprintf("%d bytes", len(content))})
	}
	return fields
}

// unquoted matches arguments that mean the same to a shell without quotes.
var unquoted = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quoted joins arguments so that their bounds are visible, in a form that a shell reads as the same arguments.
func quoted(args []string) string {
	shown := make([]string, 0, len(args))
	for _, arg := range args {
		if !unquoted.MatchString(arg) {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		shown = append(shown, arg)
	}
	return strings.Join(shown, " ")
}

func environmentFields(env *v1alpha1.ResolvedEnvironment, skillRef *v1alpha1.LocalReference) []field {
	if env == nil {
		return nil
	}
	skill := ""
	if skillRef != nil {
		skill = skillRef.Name
	}
	bySource := map[v1alpha1.EnvSource][]string{}
	for _, v := range env.Env {
		bySource[v.Source] = append(bySource[v.Source], v.Name)
	}
	fields := []field{{"Name", env.Name}, {"Skill", skill}, {"Directory", env.WorkingDir}}
	if len(env.Env) > 0 {
		fields = append(fields, field{"Trusted", fmt.Sprint(env.Trusted)})
	}
	for _, source := range sources {
		fields = append(fields, field{"Variables from " + sourceText[source], strings.Join(bySource[source], ", ")})
	}
	return append(fields, field{"Removed variables", strings.Join(env.StrippedEnv, ", ")})
}

// sources lists the sources of variables by precedence.
var sources = []v1alpha1.EnvSource{
	v1alpha1.EnvSourceCall, v1alpha1.EnvSourceEnvironment, v1alpha1.EnvSourceSkill, v1alpha1.EnvSourceDefault, v1alpha1.EnvSourceImage,
}

var sourceText = map[v1alpha1.EnvSource]string{
	v1alpha1.EnvSourceCall:        "the call",
	v1alpha1.EnvSourceEnvironment: "the environment",
	v1alpha1.EnvSourceSkill:       "the skill",
	v1alpha1.EnvSourceDefault:     "the default environment",
	v1alpha1.EnvSourceImage:       "the image",
}

// callConditions are the types of conditions in the order in which a call reaches them.
var callConditions = []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionStarted, v1alpha1.ConditionFinished, v1alpha1.ConditionSucceeded}

// conditionFields lists conditions of the given types.
func conditionFields(conditions []metav1.Condition, kinds ...string) []field {
	var fields []field
	for _, kind := range kinds {
		for _, c := range conditions {
			if c.Type == kind {
				fields = append(fields, field{kind, string(c.Status) + " (" + c.Reason + ") since " + c.LastTransitionTime.UTC().Format(time.TimeOnly)})
			}
		}
	}
	return fields
}

var pathText = map[v1alpha1.Path]string{
	v1alpha1.PathWarm:    "warm (a pod from the pool)",
	v1alpha1.PathCold:    "cold (a new pod)",
	v1alpha1.PathSession: "session (the session's pod)",
}

func timingFields(call *v1alpha1.ToolCall, now time.Time) []field {
	fields := []field{{"Timeline", timeline(call, now)}}
	if t := call.Status.Timings; t != nil {
		fields = append(fields,
			field{"Accepted after", optionalDuration(t.AcceptedMilliseconds)}, field{"Started after", optionalDuration(t.StartedMilliseconds)},
			field{"Finished after", optionalDuration(t.FinishedMilliseconds)}, field{"Path", pathText[t.Path]})
	}
	return append(fields,
		field{"Process duration", optionalDuration(call.Status.DurationMilliseconds)},
		field{"Process start", optionalTimestamp(call.Status.StartTime)})
}

func optionalDuration(ms *int64) string {
	if ms == nil {
		return ""
	}
	return formatMilliseconds(*ms)
}

func optionalTimestamp(t *metav1.MicroTime) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// streamOf returns what the status says about standard output or standard error.
func streamOf(call *v1alpha1.ToolCall, out bool) *v1alpha1.StreamStatus {
	switch {
	case call.Status.Streams == nil:
		return nil
	case out:
		return &call.Status.Streams.Stdout
	default:
		return &call.Status.Streams.Stderr
	}
}

func writeStream(out io.Writer, title, text string, about *v1alpha1.StreamStatus) {
	if about == nil || about.Bytes == 0 {
		return
	}
	fmt.Fprintf(out, "%s (%d bytes", title, about.Bytes)
	if about.Truncated {
		fmt.Fprint(out, ", truncated")
	}
	if about.InvalidUTF8 {
		fmt.Fprint(out, ", with invalid UTF-8")
	}
	fmt.Fprintf(out, "):\n%s\n", indent(text, "  "))
}
