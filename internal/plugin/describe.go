package plugin

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"toolcall.dev/operator/api/v1alpha1"
)

const describeLong = `Show all that is known of a call: how it ended and why, what ran, where and with which variables (names and sources,
never values), its conditions and timings, and its output. Control characters in the output are shown as U+FFFD;
logs prints it byte for byte.`

func newDescribe(s *session) *cobra.Command {
	return &cobra.Command{
		Use:               "describe NAME",
		Short:             "Show all that is known of a call",
		Long:              describeLong,
		Example:           "  kubectl toolcall describe nightly",
		Args:              oneCall,
		ValidArgsFunction: s.completeCalls(1),
		RunE: func(command *cobra.Command, args []string) error {
			return s.describe(command.Context(), args[0])
		},
	}
}

func (s *session) describe(ctx context.Context, name string) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	call, err := c.getCall(ctx, name)
	if err != nil {
		return err
	}
	return describeCall(s.Out, call, time.Now())
}

// field is one line of a description.
type field struct{ name, value string }

// section is a part of a description; one without lines isn't shown.
type section struct {
	title  string
	fields []field
}

func describeCall(out io.Writer, call *v1alpha1.ToolCall, now time.Time) error {
	w := newTable(out)
	for _, part := range []section{
		{"", aboutCall(call, now)}, {"Ran", aboutAction(call)}, {"Environment", aboutEnvironment(call)},
		{"Conditions", aboutConditions(call)}, {"Timings", aboutTimings(call)},
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
		fmt.Fprintf(w, "%s%s:\t%s\n", prefix, f.name, oneLine(f.value))
	}
}

func aboutCall(call *v1alpha1.ToolCall, now time.Time) []field {
	s := &call.Status
	ended := phaseOf(call)
	if s.Reason != "" {
		ended += " (" + s.Reason + ")"
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
		{"Phase", ended},
		{"Message", s.Message},
		{"Exit code", exit},
		{"Signal", s.Signal},
		{"Cancelled", map[bool]string{true: "asked for"}[call.Spec.Cancel]},
		{"Safe to repeat", retry},
	}
}

func aboutAction(call *v1alpha1.ToolCall) []field {
	var fields []field
	if action := call.Status.Action; action != nil {
		fields = append(fields, field{"Action", string(action.Type) + " (tool " + action.Tool + ")"})
	}
	spec := &call.Spec
	switch {
	case spec.Structured != nil:
		fields = append(fields, field{"Command", strings.TrimSpace(spec.Structured.Binary + " " + quoted(spec.Structured.Args))})
	case spec.Shell != nil:
		fields = append(fields, field{"Command", spec.Shell.Command})
	case spec.Code != nil:
		fields = append(fields, field{"Code", fmt.Sprintf("%s, %d bytes", spec.Code.Language, len(spec.Code.Source))})
	case spec.Tool != nil && spec.Tool.Arguments != nil:
		fields = append(fields, field{"Tool", spec.Tool.Name + " " + string(spec.Tool.Arguments.Raw)})
	}
	if spec.Stdin != "" {
		fields = append(fields, field{"Standard input", fmt.Sprintf("%d bytes", len(spec.Stdin))})
	}
	if spec.TimeoutSeconds != nil {
		fields = append(fields, field{"Wanted time limit", fmt.Sprintf("%ds", *spec.TimeoutSeconds)})
	}
	return append(fields, field{"Job", call.Status.Job}, field{"Pod", call.Status.Pod}, field{"Node", call.Status.Node})
}

// quoted shows arguments so that one can see where each begins and ends.
func quoted(args []string) string {
	shown := make([]string, 0, len(args))
	for _, arg := range args {
		if arg == "" || strings.ContainsAny(arg, " \t\n'\"\\$`|&;<>()*?[]#~%") {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		shown = append(shown, arg)
	}
	return strings.Join(shown, " ")
}

func aboutEnvironment(call *v1alpha1.ToolCall) []field {
	env := call.Status.Environment
	if env == nil {
		return nil
	}
	skill := ""
	if call.Spec.SkillRef != nil {
		skill = call.Spec.SkillRef.Name
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
		fields = append(fields, field{"Variables of " + sourceText[source], strings.Join(bySource[source], ", ")})
	}
	return append(fields, field{"Variables removed", strings.Join(env.StrippedEnv, ", ")})
}

// sources in the order of precedence.
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

func aboutConditions(call *v1alpha1.ToolCall) []field {
	var fields []field
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionStarted, v1alpha1.ConditionFinished, v1alpha1.ConditionSucceeded} {
		for _, c := range call.Status.Conditions {
			if c.Type == kind {
				fields = append(fields, field{kind, string(c.Status) + " (" + c.Reason + ") since " + c.LastTransitionTime.UTC().Format(time.TimeOnly)})
			}
		}
	}
	return fields
}

func aboutTimings(call *v1alpha1.ToolCall) []field {
	var fields []field
	if t := call.Status.Timings; t != nil {
		fields = append(fields,
			field{"Accepted after", optionalTime(t.AcceptedMilliseconds)}, field{"Started after", optionalTime(t.StartedMilliseconds)},
			field{"Finished after", optionalTime(t.FinishedMilliseconds)}, field{"Pod", map[v1alpha1.Path]string{
				v1alpha1.PathWarm: "was waiting (warm)", v1alpha1.PathCold: "made for the call (cold)",
			}[t.Path]})
	}
	return append(fields,
		field{"Process took", optionalTime(call.Status.DurationMilliseconds)},
		field{"Process started", optionalMoment(call.Status.StartTime)})
}

func optionalTime(ms *int64) string {
	if ms == nil {
		return ""
	}
	return milliseconds(*ms)
}

func optionalMoment(t *metav1.MicroTime) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

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
		fmt.Fprint(out, ", shortened")
	}
	if about.InvalidUTF8 {
		fmt.Fprint(out, ", not all of it UTF-8")
	}
	fmt.Fprintf(out, "):\n%s\n", indent(visible(text), "  "))
}
