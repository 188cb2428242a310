package plugin

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const sessionDescribeLong = `Show the details of a session: its phase and why, environment, variables (names, never values), files, limits, pod,
conditions, timings, and the calls in it that have not finished. -o prints the session itself.`

func newSessionDescribe(c *cli) *cobra.Command {
	formats := newOutputFormats()
	command := &cobra.Command{
		Use:               "describe NAME",
		Short:             "Show the details of a session",
		Long:              sessionDescribeLong,
		Example:           "  kubectl toolcall session describe dev",
		Args:              requireSession,
		ValidArgsFunction: c.completeArguments(1, listSessions),
		RunE: func(command *cobra.Command, args []string) error {
			return c.describeSession(command.Context(), args[0], &formats)
		},
	}
	formats.add(command)
	return command
}

func (c *cli) describeSession(ctx context.Context, name string, formats *outputFormats) error {
	cluster, err := c.connect()
	if err != nil {
		return err
	}
	session, err := cluster.getSession(ctx, name)
	if err != nil {
		return err
	}
	if formats.isObject() {
		return formats.print(c, session, []printable{session})
	}
	calls, err := cluster.unfinishedCalls(ctx, session)
	if err != nil {
		fmt.Fprintf(c.ErrOut, "note: the calls of the session are not shown: %s\n", terminal.SafeLine(err.Error()))
	}
	return writeSession(c.Out, session, calls, time.Now())
}

// unfinishedCalls lists the calls of a session that wait or run, in the order of their creation. The finished ones, with
// their output, stay on the server.
func (c *cluster) unfinishedCalls(ctx context.Context, session *v1alpha1.ToolSession) ([]v1alpha1.ToolCall, error) {
	selector := []fields.Selector{fields.OneTermEqualSelector(fieldSession, session.Name)}
	for _, phase := range v1alpha1.TerminalPhases() {
		selector = append(selector, fields.OneTermNotEqualSelector("status.phase", string(phase)))
	}
	list := &v1alpha1.ToolCallList{}
	opts := &client.ListOptions{Namespace: session.Namespace, FieldSelector: fields.AndSelectors(selector...)}
	if err := c.client.List(ctx, list, opts); err != nil {
		return nil, c.readError("calls", err)
	}
	calls := slices.DeleteFunc(list.Items, func(call v1alpha1.ToolCall) bool {
		ref := call.Spec.SessionRef
		return ref == nil || ref.UID != "" && ref.UID != string(session.UID)
	})
	slices.SortStableFunc(calls, func(a, b v1alpha1.ToolCall) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return calls, nil
}

func writeSession(out io.Writer, s *v1alpha1.ToolSession, calls []v1alpha1.ToolCall, now time.Time) error {
	w := newTable(out)
	for _, part := range []section{
		{"", sessionFields(s, now)}, {"Environment", sessionEnvironmentFields(s)}, {"Files", sessionFileFields(s)},
		{"Limits", sessionLimitFields(s)}, {"Pod", sessionPodFields(s)},
		{"Conditions", conditionFields(s.Status.Conditions, v1alpha1.ConditionReady, v1alpha1.ConditionEnded)},
	} {
		writeSection(w, part)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return writeSessionCalls(out, calls, now)
}

func sessionFields(s *v1alpha1.ToolSession, now time.Time) []field {
	reason, message := sessionReason(s)
	phase := sessionPhase(s)
	if reason != "" {
		phase += " (" + reason + ")"
	}
	requested := ""
	switch {
	case s.Spec.End && s.Status.Phase != v1alpha1.SessionEnded:
		requested = "end"
	case s.DeletionTimestamp != nil:
		requested = "deletion"
	case s.Spec.Suspend:
		requested = "suspension, until \"kubectl toolcall session resume\""
	}
	ended := ""
	if s.Status.Calls != nil {
		ended = fmt.Sprintf("%d had ended when the phase last changed", s.Status.Calls.Ended)
	}
	return []field{
		{"Name", s.Name}, {"Namespace", s.Namespace}, {"Age", duration.HumanDuration(now.Sub(s.CreationTimestamp.Time))},
		{"Requested by", sessionRequester(s)}, {"Phase", phase}, {"Message", message}, {"Requested", requested}, {"Calls", ended},
	}
}

// sessionEnvironmentFields show what the session began with, and before that what it asks for.
func sessionEnvironmentFields(s *v1alpha1.ToolSession) []field {
	list := environmentFields(s.Status.Environment, s.Spec.SkillRef)
	if list == nil {
		name := "the namespace's default environment"
		if s.Spec.EnvironmentRef != nil {
			name = s.Spec.EnvironmentRef.Name
		}
		list = []field{{"Name", name}}
		if s.Spec.SkillRef != nil {
			list = append(list, field{"Skill", s.Spec.SkillRef.Name})
		}
	}
	var own []string
	for _, v := range s.Spec.Env {
		own = append(own, v.Name)
	}
	return append(list, field{"Directory of the session", s.Spec.WorkingDir}, field{"Variables of the session", strings.Join(own, ", ")})
}

func sessionFileFields(s *v1alpha1.ToolSession) []field {
	w := s.Spec.Workspace
	if w == nil {
		return []field{{"Workspace", "in the pod, lost with it"}}
	}
	retained := map[v1alpha1.RetainMode]string{v1alpha1.RetainKeep: "kept when the session is deleted"}[w.Retain]
	return []field{
		{"Workspace", "on a volume of " + w.Size.String()}, {"Storage class", ptr.Deref(w.StorageClassName, "")},
		{"Volume", orText(retained, "deleted with the session")},
	}
}

func sessionLimitFields(s *v1alpha1.ToolSession) []field {
	idle := "never"
	if limit := s.IdleTimeout(); limit > 0 {
		idle = map[bool]string{true: "suspended after ", false: "ended after "}[s.Spec.Workspace != nil] + limit.String()
	}
	end := s.CreationTimestamp.Add(s.MaxLifetime())
	return []field{
		{"Without calls", idle}, {"Lifetime", s.MaxLifetime().String() + ", until " + end.UTC().Format(time.RFC3339)},
		{"Calls at the same time", fmt.Sprint(s.MaxConcurrentCalls())}, {"Calls", fmt.Sprint(s.MaxCalls())},
		{"Kept after its end", s.TTLAfterEnded().String()},
	}
}

func sessionPodFields(s *v1alpha1.ToolSession) []field {
	count := ""
	if s.Status.Incarnation > 0 {
		count = fmt.Sprint(s.Status.Incarnation)
	}
	list := []field{{"Name", s.Status.Pod}, {"Node", s.Status.Node}, {"Job", s.Status.Job}, {"Pods so far", count}}
	if t := s.Status.Timings; t != nil {
		list = append(list, field{"First ready after", optionalDuration(t.ReadyMilliseconds)}, field{"Path", pathText[t.Path]})
	}
	return list
}

// writeSessionCalls lists the calls that have not finished.
func writeSessionCalls(out io.Writer, calls []v1alpha1.ToolCall, now time.Time) error {
	if len(calls) == 0 {
		return nil
	}
	fmt.Fprintln(out, "Unfinished calls:")
	w := newTable(out)
	writeRow(w, []string{"  NAME", "PHASE", "BACKGROUND", "ACTION", "AGE"})
	for i := range calls {
		call, action, background := &calls[i], "", ""
		if call.Status.Action != nil {
			action = call.Status.Action.Summary
		}
		if call.Spec.Background {
			background = "yes"
		}
		age := duration.HumanDuration(now.Sub(call.CreationTimestamp.Time))
		writeRow(w, []string{"  " + call.Name, phaseOf(call), background, action, age})
	}
	return w.Flush()
}
