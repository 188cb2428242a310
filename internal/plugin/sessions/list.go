package sessions

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
)

// sessionPhases lists the phases in the order in which a session can reach them.
var sessionPhases = []string{
	string(v1alpha1.SessionPending), string(v1alpha1.SessionReady), string(v1alpha1.SessionSuspended), string(v1alpha1.SessionEnded),
}

// sessionListOptions are the flags of session list.
type sessionListOptions struct {
	allNamespaces bool
	selector      string
	phases        []string
	formats       *cli.Formats
}

func newSessionList(c *cli.CLI) *cobra.Command {
	o := &sessionListOptions{formats: cli.NewFormats("wide")}
	command := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls", "get"},
		Short:   "List sessions, newest first",
		Long: `List sessions, newest first. The column WORKSPACE shows the size of the volume, if the files of the session lie on one.
-o wide adds the requester, the number of pods that the session has had, the pod and the node.`,
		Example: "  kubectl toolcall session list\n  kubectl toolcall session list -A --phase Ready,Suspended\n  kubectl toolcall session list -o name",
		Args:    cli.RequireNothing,
		RunE:    c.Connected(o.run),
	}
	command.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "list the sessions of all namespaces")
	cli.AddSelectorFlag(command, &o.selector, "label selector, e.g. team=search")
	cli.AddPhaseFlag(command, &o.phases, sessionPhases, "list only sessions in these phases")
	o.formats.Add(command)
	return command
}

func (o *sessionListOptions) run(ctx context.Context, c *cli.Cluster, _ []string) error {
	namespace, where := c.Scope(o.allNamespaces)
	list := &v1alpha1.ToolSessionList{}
	if err := c.Client.List(ctx, list, client.InNamespace(namespace), &client.ListOptions{Raw: &metav1.ListOptions{LabelSelector: o.selector}}); err != nil {
		return c.Explain("list", "toolsessions", "sessions", err)
	}
	list.Items = slices.DeleteFunc(list.Items, func(s v1alpha1.ToolSession) bool {
		return len(o.phases) > 0 && !cli.ContainsFold(o.phases, sessionPhase(&s))
	})
	slices.SortStableFunc(list.Items, func(a, b v1alpha1.ToolSession) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	if o.formats.IsObject() {
		return o.formats.Print(c.Out, list)
	}
	if len(list.Items) == 0 {
		fmt.Fprintln(c.ErrOut, "No sessions found"+where)
		return nil
	}
	return o.writeTable(c.Out, list.Items, time.Now())
}

func (o *sessionListOptions) writeTable(out io.Writer, sessions []v1alpha1.ToolSession, now time.Time) error {
	w := cli.NewTable(out)
	w.Namespaces = o.allNamespaces
	wide := o.formats.Format() == "wide"
	columns := []string{"NAME", "PHASE", "REASON", "ENVIRONMENT", "WORKSPACE", "AGE"}
	if wide {
		columns = append(columns, "REQUESTED-BY", "INCARNATION", "POD", "NODE")
	}
	w.Row("NAMESPACE", columns...)
	for i := range sessions {
		s := &sessions[i]
		cells := sessionRow(s, now)
		if wide {
			cells = append(cells, sessionRequester(s), fmt.Sprint(s.Status.Incarnation), s.Status.Pod, s.Status.Node)
		}
		w.Row(s.Namespace, cells...)
	}
	return w.Flush()
}

// sessionRow returns the cells of a session, without those of -A and -o wide.
func sessionRow(s *v1alpha1.ToolSession, now time.Time) []string {
	environment, workspace := ptr.Deref(s.Spec.EnvironmentRef, v1alpha1.LocalReference{}).Name, ""
	if s.Status.Environment != nil {
		environment = s.Status.Environment.Name
	}
	if s.Spec.Workspace != nil {
		workspace = s.Spec.Workspace.Size.String()
	}
	reason, _ := sessionReason(s)
	return []string{s.Name, sessionPhase(s), reason, environment, workspace, duration.HumanDuration(now.Sub(s.CreationTimestamp.Time))}
}

func sessionRequester(s *v1alpha1.ToolSession) string {
	return ptr.Deref(s.Spec.RequestedBy, v1alpha1.Requester{}).Username
}
