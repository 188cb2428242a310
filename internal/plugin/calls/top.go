package calls

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const topLong = `Show how much environments are used, and by whom.

RUNNING and QUEUED count the calls of this moment; a call whose environment isn't decided yet counts under "-". WARM are the
pods of the warm pool that wait for a call, of those that should. P50 is the median of how long the processes of finished
calls ran. FINISHED and DENIED count calls that ended and that are still there: finished calls are deleted some time after
their end. --since leaves out calls that were created longer ago.

The exit code is 0, also if there are no calls, and 1 if they can't be read.`

const topExample = `  kubectl toolcall top
  kubectl toolcall top -A --since 10m
  kubectl toolcall top -o json`

// usage is how much an environment is used, or how much a caller uses.
type usage struct {
	// Namespace is empty for a caller.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Running   int    `json:"running"`
	Queued    int    `json:"queued"`
	Finished  int    `json:"finished"`
	Denied    int    `json:"denied"`
	// P50Milliseconds is the median duration of the processes, absent if none has ended.
	P50Milliseconds *int64 `json:"p50Milliseconds,omitempty"`
	// Warm is that of the environment, absent if it has no warm pool.
	Warm *v1alpha1.WarmStatus `json:"warm,omitempty"`

	durations []int64
}

// usageReport is what top prints with -o.
type usageReport struct {
	Environments []*usage `json:"environments"`
	Callers      []*usage `json:"callers"`
}

// topOptions are the flags of top.
type topOptions struct {
	callFilter
	allNamespaces bool
	formats       *cli.Formats
}

func newTop(c *cli.CLI) *cobra.Command {
	o := &topOptions{formats: cli.NewFormats()}
	command := &cobra.Command{
		Use:     "top",
		Short:   "Show how much environments are used, and by whom",
		Long:    topLong,
		Example: topExample,
		Args:    cli.RequireNothing,
		RunE:    c.Connected(o.run),
	}
	flags := command.Flags()
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "count the calls of all namespaces")
	flags.DurationVar(&o.since, "since", 0, "only calls that were created within this time, e.g. 10m or 2h")
	cli.CheckBefore(command, o.callFilter.validate)
	return o.formats.Add(command)
}

func (o *topOptions) run(ctx context.Context, c *cli.Cluster, _ []string) error {
	namespace, _ := c.Scope(o.allNamespaces)
	table, err := callTable(ctx, c, callQuery{namespace: namespace})
	if err != nil {
		return err
	}
	environments := &v1alpha1.ExecutionEnvironmentList{}
	if err := c.Client.List(ctx, environments, client.InNamespace(namespace)); err != nil {
		if !apierrors.IsForbidden(err) {
			return c.Explain("list", "executionenvironments", "environments", err)
		}
		c.Note(false, "note: warm pods and unused environments are not shown: %s", terminal.SafeLine(c.Explain("list", "executionenvironments", "environments", err).Error()))
	}
	o.keepRecent(table)
	report := countUsage(table, environments.Items)
	if o.formats.IsObject() {
		return o.formats.PrintReport(c.Out, "Usage", "usage", report)
	}
	return o.write(c, report)
}

// countUsage counts the calls of a table, also for environments without any.
func countUsage(table *metav1.Table, environments []v1alpha1.ExecutionEnvironment) *usageReport {
	byEnvironment, byCaller := map[string]*usage{}, map[string]*usage{}
	for i := range environments {
		env := &environments[i]
		usageOf(byEnvironment, env.Namespace, env.Name).Warm = env.Status.Warm
	}
	columns := table.ColumnDefinitions
	phase, environment := columnIndex(columns, "Phase"), columnIndex(columns, "Environment")
	requestedBy, duration := columnIndex(columns, "Requested-By"), columnIndex(columns, columnDuration)
	for i := range table.Rows {
		row := &table.Rows[i]
		for _, counted := range []*usage{
			usageOf(byEnvironment, rowCall(row).Namespace, cmp.Or(cellText(row, environment), "-")),
			usageOf(byCaller, "", cmp.Or(cellText(row, requestedBy), "-")),
		} {
			counted.count(v1alpha1.Phase(cellText(row, phase)))
			if ms, ok := cellNumber(row, duration); ok {
				counted.durations = append(counted.durations, ms)
			}
		}
	}
	return &usageReport{Environments: sortedUsage(byEnvironment), Callers: sortedUsage(byCaller)}
}

func usageOf(all map[string]*usage, namespace, name string) *usage {
	key := namespace + "/" + name
	if all[key] == nil {
		all[key] = &usage{Namespace: namespace, Name: name}
	}
	return all[key]
}

func (u *usage) count(phase v1alpha1.Phase) {
	switch {
	case phase == v1alpha1.PhaseRunning:
		u.Running++
	case phase == v1alpha1.PhaseDenied:
		u.Denied++
	case phase.Terminal():
		u.Finished++
	default:
		u.Queued++
	}
}

// sortedUsage puts those first that use most now, and works out the medians.
func sortedUsage(all map[string]*usage) []*usage {
	list := slices.SortedFunc(maps.Values(all), func(a, b *usage) int {
		return cmp.Or(cmp.Compare(b.Running, a.Running), cmp.Compare(b.Queued, a.Queued),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	for _, u := range list {
		if len(u.durations) == 0 {
			continue
		}
		slices.Sort(u.durations)
		median := u.durations[(len(u.durations)-1)/2]
		u.P50Milliseconds = &median
	}
	return list
}

func (o *topOptions) write(c *cli.Cluster, report *usageReport) error {
	if len(report.Environments) == 0 {
		fmt.Fprintln(c.ErrOut, "No environments and no calls found.")
		return nil
	}
	w := cli.NewTable(c.Out)
	w.Namespaces = o.allNamespaces
	w.Row("NAMESPACE", "ENVIRONMENT", "RUNNING", "QUEUED", "WARM", "P50", "FINISHED", "DENIED")
	for _, u := range report.Environments {
		warm := ""
		if u.Warm != nil {
			warm = fmt.Sprintf("%d/%d", u.Warm.Ready, u.Warm.Desired)
		}
		w.Row(u.Namespace, u.Name, fmt.Sprint(u.Running), fmt.Sprint(u.Queued), warm, cli.OptionalDuration(u.P50Milliseconds), fmt.Sprint(u.Finished), fmt.Sprint(u.Denied))
	}
	if len(report.Callers) == 0 {
		return w.Flush()
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(c.Out)
	w.Namespaces = false
	w.Row("", "CALLER", "RUNNING", "QUEUED", "P50", "FINISHED", "DENIED")
	for _, u := range report.Callers {
		w.Row("", u.Name, fmt.Sprint(u.Running), fmt.Sprint(u.Queued), cli.OptionalDuration(u.P50Milliseconds), fmt.Sprint(u.Finished), fmt.Sprint(u.Denied))
	}
	return w.Flush()
}
