package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// ApprovalFields describe what people decide about a call, and what they decided by now.
func ApprovalFields(a *v1alpha1.ApprovalStatus, now time.Time) []Field {
	if a == nil {
		return nil
	}
	var by []string
	for _, one := range a.ApprovedBy {
		by = append(by, one.Username)
	}
	deniedBy := ""
	if a.DeniedBy != nil {
		deniedBy = a.DeniedBy.Username
	}
	expires := "was " + duration.HumanDuration(now.Sub(a.ExpiresAt.Time)) + " ago"
	if left := a.ExpiresAt.Sub(now); left > 0 {
		expires = "in " + duration.HumanDuration(left)
	}
	return []Field{
		{"Because of", strings.Join(a.Causes, ", ")}, {"Says", strings.Join(a.Messages, "; ")}, {"Ask", strings.Join(a.Approvers, ", ")},
		{"Needed", fmt.Sprint(a.Minimum)}, {"Approved by", strings.Join(by, ", ")}, {"Denied by", deniedBy},
		{"Asked", duration.HumanDuration(now.Sub(a.RequestedAt.Time)) + " ago"}, {"Time limit", expires}, {"Digest", a.Digest},
	}
}

// ListAwaiting are the calls that wait for people to decide about them.
func ListAwaiting(ctx context.Context, c *Cluster) (names []string, err error) {
	calls, err := c.AwaitingApproval(ctx, c.Namespace)
	for i := range calls {
		names = append(names, calls[i].Name)
	}
	return names, err
}

// AwaitingApproval are the calls of a namespace, or of all, that wait for people to decide about them.
func (c *Cluster) AwaitingApproval(ctx context.Context, namespace string) ([]v1alpha1.ToolCall, error) {
	list := &v1alpha1.ToolCallList{}
	selector := client.MatchingFields{"status.reason": v1alpha1.ReasonAwaitingApproval}
	if err := c.Client.List(ctx, list, client.InNamespace(namespace), selector); err != nil {
		return nil, c.ChangeError("list", "toolcalls", "toolcall-approver", "the calls", err)
	}
	return list.Items, nil
}

// RequireOneCall is RequireCall for those who look for calls that wait.
var RequireOneCall = requireNames(1, `the name of one call: "kubectl toolcall approvals" lists the calls that wait`)

// ErrNotConfirmed says that the user didn't confirm.
var ErrNotConfirmed = errors.New("nothing was decided")
