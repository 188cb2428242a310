package sessions

import (
	"cmp"
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
	"toolcall.dev/operator/internal/plugin/calls"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const sessionDescribeLong = `Show the details of a session: its phase and why, environment, variables (names, never values), files, limits, pod,
conditions, timings, and the calls in it that have not finished. -o prints the session itself.`

func newSessionDescribe(c *cli.CLI) *cobra.Command {
	formats := cli.NewFormats()
	return formats.Add(&cobra.Command{
		Use:               "describe NAME",
		Short:             "Show the details of a session",
		Long:              sessionDescribeLong,
		Example:           "  kubectl toolcall session describe dev",
		Args:              cli.RequireSession,
		ValidArgsFunction: c.CompleteArguments(1, cli.ListSessions),
		RunE: c.Connected(func(ctx context.Context, cluster *cli.Cluster, args []string) error {
			session, err := cluster.GetSession(ctx, args[0])
			if err != nil {
				return err
			}
			if formats.IsObject() {
				return formats.Print(c.Out, session)
			}
			calls, err := unfinishedCalls(ctx, cluster, session)
			if err != nil {
				c.Note(false, "note: the calls of the session are not shown: %s", terminal.SafeLine(err.Error()))
			}
			return writeSession(c.Out, session, calls, time.Now())
		}),
	})
}

// unfinishedCalls lists the calls of a session that wait or run, in the order of their creation. The finished ones, with
// their output, stay on the server.
func unfinishedCalls(ctx context.Context, c *cli.Cluster, session *v1alpha1.ToolSession) ([]v1alpha1.ToolCall, error) {
	selector := []fields.Selector{fields.OneTermEqualSelector(calls.FieldSession, session.Name)}
	for _, phase := range v1alpha1.TerminalPhases() {
		selector = append(selector, fields.OneTermNotEqualSelector("status.phase", string(phase)))
	}
	list := &v1alpha1.ToolCallList{}
	opts := &client.ListOptions{Namespace: session.Namespace, FieldSelector: fields.AndSelectors(selector...)}
	if err := c.Client.List(ctx, list, opts); err != nil {
		return nil, c.Explain("list", "toolcalls", "calls", err)
	}
	calls := slices.DeleteFunc(list.Items, func(call v1alpha1.ToolCall) bool {
		ref := call.Spec.SessionRef
		return ref == nil || ref.UID != "" && ref.UID != string(session.UID)
	})
	slices.SortStableFunc(calls, func(a, b v1alpha1.ToolCall) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return calls, nil
}

func writeSession(out io.Writer, s *v1alpha1.ToolSession, calls []v1alpha1.ToolCall, now time.Time) error {
	d := cli.NewDescription(out)
	d.Section("", sessionFields(s, now))
	d.Section("Environment", sessionEnvironmentFields(s))
	d.Section("Files", sessionFileFields(s))
	d.Section("Limits", sessionLimitFields(s))
	d.Section("Pod", sessionPodFields(s))
	d.Section("Conditions", cli.ConditionFields(s.Status.Conditions, v1alpha1.ConditionReady, v1alpha1.ConditionEnded))
	if err := d.Flush(); err != nil {
		return err
	}
	return writeSessionCalls(out, calls, now)
}

func sessionFields(s *v1alpha1.ToolSession, now time.Time) []cli.Field {
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
	return []cli.Field{
		{"Name", s.Name}, {"Namespace", s.Namespace}, {"Age", duration.HumanDuration(now.Sub(s.CreationTimestamp.Time))},
		{"Requested by", sessionRequester(s)}, {"Phase", phase}, {"Message", message}, {"Requested", requested}, {"Calls", ended},
	}
}

// sessionEnvironmentFields show what the session began with, and before that what it asks for.
func sessionEnvironmentFields(s *v1alpha1.ToolSession) []cli.Field {
	list := calls.EnvironmentFields(s.Status.Environment, s.Spec.SkillRef)
	if list == nil {
		name := ptr.Deref(s.Spec.EnvironmentRef, v1alpha1.LocalReference{Name: "the namespace's default environment"}).Name
		list = []cli.Field{{"Name", name}, {"Skill", ptr.Deref(s.Spec.SkillRef, v1alpha1.LocalReference{}).Name}}
	}
	var own []string
	for _, v := range s.Spec.Env {
		own = append(own, v.Name)
	}
	return append(list, cli.Field{"Directory of the session", s.Spec.WorkingDir}, cli.Field{"Variables of the session", strings.Join(own, ", ")})
}

func sessionFileFields(s *v1alpha1.ToolSession) []cli.Field {
	w := s.Spec.Workspace
	if w == nil {
		return []cli.Field{{"Workspace", "in the pod, lost with it"}}
	}
	retained := map[v1alpha1.RetainMode]string{v1alpha1.RetainKeep: "kept when the session is deleted"}[w.Retain]
	return []cli.Field{
		{"Workspace", "on a volume of " + w.Size.String()}, {"Storage class", ptr.Deref(w.StorageClassName, "")},
		{"Volume", cmp.Or(retained, "deleted with the session")},
	}
}

func sessionLimitFields(s *v1alpha1.ToolSession) []cli.Field {
	idle := "never"
	if limit := s.IdleTimeout(); limit > 0 {
		idle = map[bool]string{true: "suspended after ", false: "ended after "}[s.Spec.Workspace != nil] + limit.String()
	}
	end := s.CreationTimestamp.Add(s.MaxLifetime())
	return []cli.Field{
		{"Without calls", idle}, {"Lifetime", s.MaxLifetime().String() + ", until " + end.UTC().Format(time.RFC3339)},
		{"Calls at the same time", fmt.Sprint(s.MaxConcurrentCalls())}, {"Calls", fmt.Sprint(s.MaxCalls())},
		{"Kept after its end", s.TTLAfterEnded().String()},
	}
}

func sessionPodFields(s *v1alpha1.ToolSession) []cli.Field {
	count := ""
	if s.Status.Incarnation > 0 {
		count = fmt.Sprint(s.Status.Incarnation)
	}
	list := []cli.Field{{"Name", s.Status.Pod}, {"Node", s.Status.Node}, {"Job", s.Status.Job}, {"Pods so far", count}}
	if t := s.Status.Timings; t != nil {
		list = append(list, cli.Field{"First ready after", cli.OptionalDuration(t.ReadyMilliseconds)}, cli.Field{"Path", calls.PathText[t.Path]})
	}
	return list
}

// writeSessionCalls lists the calls that have not finished.
func writeSessionCalls(out io.Writer, unfinished []v1alpha1.ToolCall, now time.Time) error {
	if len(unfinished) == 0 {
		return nil
	}
	fmt.Fprintln(out, "Unfinished calls:")
	w := cli.NewTable(out)
	w.Row("", "  NAME", "PHASE", "BACKGROUND", "ACTION", "AGE")
	for i := range unfinished {
		call := &unfinished[i]
		action := ptr.Deref(call.Status.Action, v1alpha1.MappedAction{}).Summary
		background := map[bool]string{true: "yes"}[call.Spec.Background]
		age := duration.HumanDuration(now.Sub(call.CreationTimestamp.Time))
		w.Row("", "  "+call.Name, calls.PhaseOf(call), background, action, age)
	}
	return w.Flush()
}
