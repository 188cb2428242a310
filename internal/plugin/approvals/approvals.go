// Package approvals has the commands for people who decide about calls: one lists what waits, one shows a call as it will run and takes
// the decision.
//
// What is shown comes from agents, so that control characters are made visible wherever it goes.
package approvals

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
)

// Commands are the commands about approvals.
func Commands(c *cli.CLI) []*cobra.Command { return []*cobra.Command{newApprove(c), newApprovals(c)} }

const approvalsLong = `List the calls that wait for a person to decide about them, the one that expires first on top. "approve" shows one of them as it
will run, and takes the decision.

The exit code is 0, also if no call waits, and 1 if the calls can't be read.`

func newApprovals(c *cli.CLI) *cobra.Command {
	all, formats := false, cli.NewFormats()
	command := &cobra.Command{
		Use:     "approvals",
		Short:   "List the calls that wait for approval",
		Long:    approvalsLong,
		Example: "  kubectl toolcall approvals\n  kubectl toolcall approvals -A",
		Args:    cli.RequireNothing,
		RunE: c.Connected(func(ctx context.Context, cluster *cli.Cluster, _ []string) error {
			return list(ctx, cluster, all, formats)
		}),
	}
	command.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list the calls of all namespaces")
	return formats.Add(command)
}

// waiting are the calls of a namespace, or of all, that wait for people to decide about them.
func waiting(ctx context.Context, c *cli.Cluster, namespace string) ([]v1alpha1.ToolCall, error) {
	list := &v1alpha1.ToolCallList{}
	selector := client.MatchingFields{"status.reason": v1alpha1.ReasonAwaitingApproval}
	if err := c.Client.List(ctx, list, client.InNamespace(namespace), selector); err != nil {
		return nil, c.Explain("approve", "toolcalls", "calls", err)
	}
	return list.Items, nil
}

func list(ctx context.Context, c *cli.Cluster, all bool, formats *cli.Formats) error {
	namespace, where := c.Scope(all)
	calls, err := waiting(ctx, c, namespace)
	if err != nil {
		return err
	}
	calls = slices.DeleteFunc(calls, func(call v1alpha1.ToolCall) bool { return !call.AwaitsApproval() })
	slices.SortStableFunc(calls, func(a, b v1alpha1.ToolCall) int {
		return a.Status.Approval.ExpiresAt.Compare(b.Status.Approval.ExpiresAt.Time)
	})
	if formats.IsObject() {
		return formats.Print(c.Out, &v1alpha1.ToolCallList{Items: calls})
	}
	if len(calls) == 0 {
		fmt.Fprintln(c.ErrOut, "No calls wait for approval"+where)
		return nil
	}
	return writeTable(c.Out, calls, all, time.Now())
}

func writeTable(out io.Writer, calls []v1alpha1.ToolCall, all bool, now time.Time) error {
	w := cli.NewTable(out)
	w.Namespaces = all
	w.Row("NAMESPACE", "NAME", "REQUESTED-BY", "ACTION", "APPROVED", "WAITS", "EXPIRES-IN")
	for i := range calls {
		call, a := &calls[i], calls[i].Status.Approval
		action := ""
		if call.Status.Action != nil {
			action = call.Status.Action.Summary
		}
		w.Row(call.Namespace, call.Name, call.RequesterName(), action, fmt.Sprintf("%d/%d", len(a.ApprovedBy), a.Needed),
			duration.HumanDuration(now.Sub(a.RequestedAt.Time)), duration.HumanDuration(max(a.ExpiresAt.Sub(now), 0)))
	}
	return w.Flush()
}
