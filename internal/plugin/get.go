package plugin

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

const getExample = `  kubectl toolcall get
  kubectl toolcall get -A --phase Failed,Denied
  kubectl toolcall get -l team=search -o name
  kubectl toolcall get --session dev --phase Running
  kubectl toolcall get nightly -o jsonpath='{.status.exitCode}'`

// getOptions are the flags of get.
type getOptions struct {
	*cli
	allNamespaces bool
	selector      string
	session       string
	phases        []string
	print         *genericclioptions.PrintFlags
}

// phases lists the phases in the order in which a call can reach them.
var phases = []string{"Pending", "Running", "Succeeded", "Failed", "Denied", "Cancelled"}

func newGet(c *cli) *cobra.Command {
	o := &getOptions{cli: c, print: genericclioptions.NewPrintFlags("").WithTypeSetter(scheme())}
	command := &cobra.Command{
		Use:               "get [NAME...]",
		Aliases:           []string{"list", "ls"},
		Short:             "List calls, newest first",
		Long:              "List calls, newest first, with their action, outcome and duration. -o wide adds the requester, the session, the pod and the node.",
		Example:           getExample,
		ValidArgsFunction: c.completeCalls(-1),
		RunE: func(command *cobra.Command, args []string) error {
			return o.run(command.Context(), args)
		},
	}
	flags := command.Flags()
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "list the calls of all namespaces")
	flags.StringVarP(&o.selector, "selector", "l", "", "label selector, e.g. team=search")
	flags.StringVar(&o.session, "session", "", "list only calls in sessions of this name")
	flags.StringSliceVar(&o.phases, "phase", nil, "list only calls in these phases: "+strings.Join(phases, ", "))
	o.print.AddFlags(command)
	c.addRawFlag(command)
	flags.Lookup("output").Usage = "output format: wide, or one of: " + strings.Join(o.print.AllowedFormats(), ", ")
	must(command.RegisterFlagCompletionFunc("phase", completeFrom(phases...)))
	must(command.RegisterFlagCompletionFunc("session", c.completeSessions))
	return command
}

func (o *getOptions) run(ctx context.Context, names []string) error {
	for _, phase := range o.phases {
		if !containsFold(phases, phase) {
			return fmt.Errorf("--phase %q: must be one of %s", phase, strings.Join(phases, ", "))
		}
	}
	if o.allNamespaces && len(names) > 0 {
		return fmt.Errorf("names and --all-namespaces can't be used together: select one namespace with -n")
	}
	cluster, err := o.connect()
	if err != nil {
		return err
	}
	list, err := o.list(ctx, cluster, names)
	if err != nil {
		return err
	}
	if format := *o.print.OutputFormat; format != "" && format != "wide" {
		return o.printObjects(list, len(names) == 1)
	}
	if len(list.Items) == 0 {
		fmt.Fprintln(o.ErrOut, "No calls found"+o.scope(cluster))
		return nil
	}
	return o.writeTable(o.Out, list.Items)
}

func (o *getOptions) scope(c *cluster) string {
	if o.allNamespaces {
		return "."
	}
	return fmt.Sprintf(" in namespace %s.", c.namespace)
}

// list reads the calls that the arguments and flags select.
func (o *getOptions) list(ctx context.Context, c *cluster, names []string) (*v1alpha1.ToolCallList, error) {
	list := &v1alpha1.ToolCallList{}
	for _, name := range names {
		call, err := c.getCall(ctx, name)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, *call)
	}
	if len(names) == 0 {
		selector, err := labels.Parse(o.selector)
		if err != nil {
			return nil, fmt.Errorf("--selector %q: %w", o.selector, err)
		}
		opts := &client.ListOptions{LabelSelector: selector, Namespace: c.namespace}
		if o.allNamespaces {
			opts.Namespace = ""
		}
		if o.session != "" {
			opts.FieldSelector = fields.OneTermEqualSelector(fieldSession, o.session)
		}
		if err := c.client.List(ctx, list, opts); err != nil {
			return nil, c.readError("calls", err)
		}
		slices.SortFunc(list.Items, func(a, b v1alpha1.ToolCall) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	}
	list.Items = slices.DeleteFunc(list.Items, func(call v1alpha1.ToolCall) bool { return !o.selects(&call) })
	return list, nil
}

// selects reports whether the call is in the session of --session, and in one of the phases of --phase.
func (o *getOptions) selects(call *v1alpha1.ToolCall) bool {
	if o.session != "" && sessionName(call) != o.session {
		return false
	}
	if len(o.phases) == 0 {
		return true
	}
	return containsFold(o.phases, phaseOf(call))
}

// fieldSession is the field by which the API server selects the calls of a session.
const fieldSession = "spec.sessionRef.name"

// sessionName is the name of the session that the call runs in, empty if it runs in none.
func sessionName(call *v1alpha1.ToolCall) string {
	if call.Spec.SessionRef == nil {
		return ""
	}
	return call.Spec.SessionRef.Name
}

// phaseOf returns Pending for a call that the operator has not seen yet.
func phaseOf(call *v1alpha1.ToolCall) string {
	if call.Status.Phase == "" {
		return string(v1alpha1.PhasePending)
	}
	return string(call.Status.Phase)
}

// printObjects prints a single call as an object, several as a list.
func (o *getOptions) printObjects(list *v1alpha1.ToolCallList, single bool) error {
	printer, err := o.print.ToPrinter()
	if err != nil {
		return err
	}
	if single && len(list.Items) == 1 {
		return printer.PrintObj(&list.Items[0], o.Out)
	}
	if *o.print.OutputFormat == "name" {
		for i := range list.Items {
			if err := printer.PrintObj(&list.Items[i], o.Out); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolCall"))
	}
	return printer.PrintObj(list, o.Out)
}

func (o *getOptions) writeTable(out io.Writer, calls []v1alpha1.ToolCall) error {
	w := newTable(out)
	columns := []string{"NAME", "PHASE", "REASON", "EXIT", "ENVIRONMENT", "ACTION", "DURATION", "AGE"}
	if o.allNamespaces {
		columns = append([]string{"NAMESPACE"}, columns...)
	}
	wide := *o.print.OutputFormat == "wide"
	if wide {
		columns = append(columns, "REQUESTED-BY", "SESSION", "POD", "NODE")
	}
	writeRow(w, columns)
	for i := range calls {
		cells := row(&calls[i], time.Now())
		if o.allNamespaces {
			cells = append([]string{calls[i].Namespace}, cells...)
		}
		if wide {
			cells = append(cells, requester(&calls[i]), sessionName(&calls[i]), calls[i].Status.Pod, calls[i].Status.Node)
		}
		writeRow(w, cells)
	}
	return w.Flush()
}

// row returns the cells of a call, without those of -A and -o wide.
func row(call *v1alpha1.ToolCall, now time.Time) []string {
	s := &call.Status
	exit, environment, action, took := "", "", "", ""
	if s.ExitCode != nil {
		exit = strconv.Itoa(int(*s.ExitCode))
	}
	if s.Environment != nil {
		environment = s.Environment.Name
	}
	if s.Action != nil {
		action = s.Action.Summary
	}
	if s.DurationMilliseconds != nil {
		took = formatMilliseconds(*s.DurationMilliseconds)
	}
	return []string{call.Name, phaseOf(call), s.Reason, exit, environment, action, took, duration.HumanDuration(now.Sub(call.CreationTimestamp.Time))}
}

func requester(call *v1alpha1.ToolCall) string {
	if call.Spec.RequestedBy == nil {
		return ""
	}
	return call.Spec.RequestedBy.Username
}
