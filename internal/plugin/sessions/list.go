package sessions

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
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
	*cli.CLI
	allNamespaces bool
	selector      string
	phases        []string
	formats       cli.Formats
}

func newSessionList(c *cli.CLI) *cobra.Command {
	o := &sessionListOptions{CLI: c, formats: cli.NewFormats("wide")}
	command := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls", "get"},
		Short:   "List sessions, newest first",
		Long: `List sessions, newest first. The column WORKSPACE shows the size of the volume, if the files of the session lie on one.
-o wide adds the requester, the number of pods that the session has had, the pod and the node.`,
		Example: "  kubectl toolcall session list\n  kubectl toolcall session list -A --phase Ready,Suspended\n  kubectl toolcall session list -o name",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.run(command.Context())
		},
	}
	flags := command.Flags()
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "list the sessions of all namespaces")
	flags.StringVarP(&o.selector, "selector", "l", "", "label selector, e.g. team=search")
	flags.StringSliceVar(&o.phases, "phase", nil, "list only sessions in these phases: "+strings.Join(sessionPhases, ", "))
	o.formats.Add(command)
	cli.Must(command.RegisterFlagCompletionFunc("phase", cli.CompleteFrom(sessionPhases...)))
	return command
}

func (o *sessionListOptions) run(ctx context.Context) error {
	for _, phase := range o.phases {
		if !cli.ContainsFold(sessionPhases, phase) {
			return fmt.Errorf("--phase %q: must be one of %s", phase, strings.Join(sessionPhases, ", "))
		}
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return fmt.Errorf("--selector %q: %w", o.selector, err)
	}
	cluster, err := o.Connect()
	if err != nil {
		return err
	}
	opts, where := &client.ListOptions{LabelSelector: selector, Namespace: cluster.Namespace}, fmt.Sprintf(" in namespace %s.", cluster.Namespace)
	if o.allNamespaces {
		opts.Namespace, where = "", "."
	}
	list := &v1alpha1.ToolSessionList{}
	if err := cluster.Client.List(ctx, list, opts); err != nil {
		return cluster.SessionError("list", "sessions", err)
	}
	list.Items = slices.DeleteFunc(list.Items, func(s v1alpha1.ToolSession) bool {
		return len(o.phases) > 0 && !cli.ContainsFold(o.phases, sessionPhase(&s))
	})
	slices.SortStableFunc(list.Items, func(a, b v1alpha1.ToolSession) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	if o.formats.IsObject() {
		return o.formats.Print(o.CLI, list, sessionObjects(list))
	}
	if len(list.Items) == 0 {
		fmt.Fprintln(o.ErrOut, "No sessions found"+where)
		return nil
	}
	return o.writeTable(list.Items, time.Now())
}

// sessionObjects are the sessions of a list, each with its kind.
func sessionObjects(list *v1alpha1.ToolSessionList) []cli.Printable {
	var all []cli.Printable
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolSession"))
		all = append(all, &list.Items[i])
	}
	return all
}

func (o *sessionListOptions) writeTable(sessions []v1alpha1.ToolSession, now time.Time) error {
	w := cli.NewTable(o.Out)
	columns := []string{"NAME", "PHASE", "REASON", "ENVIRONMENT", "WORKSPACE", "AGE"}
	if o.allNamespaces {
		columns = append([]string{"NAMESPACE"}, columns...)
	}
	wide := o.formats.Format() == "wide"
	if wide {
		columns = append(columns, "REQUESTED-BY", "INCARNATION", "POD", "NODE")
	}
	cli.WriteRow(w, columns)
	for i := range sessions {
		s := &sessions[i]
		cells := sessionRow(s, now)
		if o.allNamespaces {
			cells = append([]string{s.Namespace}, cells...)
		}
		if wide {
			cells = append(cells, sessionRequester(s), fmt.Sprint(s.Status.Incarnation), s.Status.Pod, s.Status.Node)
		}
		cli.WriteRow(w, cells)
	}
	return w.Flush()
}

// sessionRow returns the cells of a session, without those of -A and -o wide.
func sessionRow(s *v1alpha1.ToolSession, now time.Time) []string {
	environment, workspace := "", ""
	switch {
	case s.Status.Environment != nil:
		environment = s.Status.Environment.Name
	case s.Spec.EnvironmentRef != nil:
		environment = s.Spec.EnvironmentRef.Name
	}
	if s.Spec.Workspace != nil {
		workspace = s.Spec.Workspace.Size.String()
	}
	reason, _ := sessionReason(s)
	return []string{s.Name, sessionPhase(s), reason, environment, workspace, duration.HumanDuration(now.Sub(s.CreationTimestamp.Time))}
}

func sessionRequester(s *v1alpha1.ToolSession) string {
	if s.Spec.RequestedBy == nil {
		return ""
	}
	return s.Spec.RequestedBy.Username
}
