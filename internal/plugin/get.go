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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

const getExample = `  kubectl toolcall get
  kubectl toolcall get -A --phase Failed,Denied
  kubectl toolcall get -l team=search -o name
  kubectl toolcall get nightly -o jsonpath='{.status.exitCode}'`

// getOptions are the flags of get.
type getOptions struct {
	*session
	allNamespaces bool
	selector      string
	phases        []string
	print         *genericclioptions.PrintFlags
}

// phases in the order in which a call may go through them.
var phases = []string{"Pending", "Running", "Succeeded", "Failed", "Denied", "Cancelled"}

func newGet(s *session) *cobra.Command {
	o := &getOptions{session: s, print: genericclioptions.NewPrintFlags("").WithTypeSetter(scheme())}
	command := &cobra.Command{
		Use:               "get [NAME...]",
		Aliases:           []string{"list", "ls"},
		Short:             "List calls, newest first",
		Long:              "List calls, newest first: what ran, how it ended and how long it took. -o wide adds who asked for it, its pod and its node.",
		Example:           getExample,
		ValidArgsFunction: s.completeCalls(-1),
		RunE: func(command *cobra.Command, args []string) error {
			return o.run(command.Context(), args)
		},
	}
	flags := command.Flags()
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "of every namespace")
	flags.StringVarP(&o.selector, "selector", "l", "", "labels, e.g. team=search")
	flags.StringSliceVar(&o.phases, "phase", nil, "only calls of these phases: "+strings.Join(phases, ", "))
	o.print.AddFlags(command)
	flags.Lookup("output").Usage = "Output format: wide, or one of: " + strings.Join(o.print.AllowedFormats(), ", ")
	must(command.RegisterFlagCompletionFunc("phase", completeFrom(phases...)))
	return command
}

func (o *getOptions) run(ctx context.Context, names []string) error {
	for _, phase := range o.phases {
		if !slices.ContainsFunc(phases, func(p string) bool { return strings.EqualFold(p, phase) }) {
			return fmt.Errorf("--phase %q: say one of %s", phase, strings.Join(phases, ", "))
		}
	}
	if o.allNamespaces && len(names) > 0 {
		return fmt.Errorf("names and --all-namespaces don't go together: choose one namespace with -n")
	}
	c, err := o.connect()
	if err != nil {
		return err
	}
	list, err := o.list(ctx, c, names)
	if err != nil {
		return err
	}
	if format := *o.print.OutputFormat; format != "" && format != "wide" {
		return o.objects(list, len(names) == 1)
	}
	if len(list.Items) == 0 {
		fmt.Fprintln(o.ErrOut, "No calls found"+o.where(c))
		return nil
	}
	return o.table(o.Out, list.Items)
}

func (o *getOptions) where(c *cluster) string {
	if o.allNamespaces {
		return "."
	}
	return fmt.Sprintf(" in namespace %s.", c.namespace)
}

// list reads the calls that are asked for.
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
		if err := c.client.List(ctx, list, opts); err != nil {
			return nil, c.readError("calls", err)
		}
		slices.SortFunc(list.Items, func(a, b v1alpha1.ToolCall) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	}
	list.Items = slices.DeleteFunc(list.Items, func(call v1alpha1.ToolCall) bool { return !o.wants(&call) })
	return list, nil
}

func (o *getOptions) wants(call *v1alpha1.ToolCall) bool {
	if len(o.phases) == 0 {
		return true
	}
	return slices.ContainsFunc(o.phases, func(phase string) bool { return strings.EqualFold(phase, phaseOf(call)) })
}

// phaseOf takes a call that the operator hasn't seen for a pending one.
func phaseOf(call *v1alpha1.ToolCall) string {
	if call.Status.Phase == "" {
		return string(v1alpha1.PhasePending)
	}
	return string(call.Status.Phase)
}

func (o *getOptions) objects(list *v1alpha1.ToolCallList, single bool) error {
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

func (o *getOptions) table(out io.Writer, calls []v1alpha1.ToolCall) error {
	w := newTable(out)
	columns := []string{"NAME", "PHASE", "REASON", "EXIT", "ENVIRONMENT", "ACTION", "TOOK", "AGE"}
	if o.allNamespaces {
		columns = append([]string{"NAMESPACE"}, columns...)
	}
	wide := *o.print.OutputFormat == "wide"
	if wide {
		columns = append(columns, "REQUESTED-BY", "POD", "NODE")
	}
	fmt.Fprintln(w, strings.Join(columns, "\t"))
	for i := range calls {
		cells := row(&calls[i], time.Now())
		if o.allNamespaces {
			cells = append([]string{calls[i].Namespace}, cells...)
		}
		if wide {
			cells = append(cells, requester(&calls[i]), calls[i].Status.Pod, calls[i].Status.Node)
		}
		for n, cell := range cells {
			cells[n] = oneLine(orNone(cell))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

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
		took = milliseconds(*s.DurationMilliseconds)
	}
	return []string{call.Name, phaseOf(call), s.Reason, exit, environment, action, took, duration.HumanDuration(now.Sub(call.CreationTimestamp.Time))}
}

func requester(call *v1alpha1.ToolCall) string {
	if call.Spec.RequestedBy == nil {
		return ""
	}
	return call.Spec.RequestedBy.Username
}

func orNone(text string) string {
	if strings.TrimSpace(text) == "" {
		return "-"
	}
	return text
}
