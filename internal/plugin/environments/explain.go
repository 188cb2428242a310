package environments

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	subresourcesv1alpha1 "toolcall.dev/operator/api/subresources/v1alpha1"
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/denials"
	"toolcall.dev/operator/internal/docurl"
	"toolcall.dev/operator/internal/plugin/calls"
	"toolcall.dev/operator/internal/plugin/cli"
)

const explainLong = `Explain why a call was denied: which rule denied it, and what is allowed instead.

The last line says whether the same call would be allowed now: the policy or permissions may have changed. The operator
reviews the call again, as its requester if that is you, or somebody whom you may impersonate, and otherwise as if you created
it. -o prints the same as an object of kind Explanation.

The exit code is 0 if the call was denied, and 1 if it wasn't or can't be read.`

func newExplainDenial(c *cli.CLI) *cobra.Command {
	formats := cli.NewFormats()
	command := &cobra.Command{
		Use:               "explain-denial NAME",
		Short:             "Explain why a call was denied and what is allowed",
		Long:              explainLong,
		Example:           "  kubectl toolcall explain-denial run-x7k2m9p4",
		Args:              cli.RequireCall,
		ValidArgsFunction: c.CompleteArguments(1, cli.ListCalls),
		RunE: c.Connected(func(ctx context.Context, cluster *cli.Cluster, args []string) error {
			call, err := cluster.GetCall(ctx, args[0])
			if err != nil {
				return err
			}
			if call.Status.Phase != v1alpha1.PhaseDenied {
				return fmt.Errorf("call %s was not denied, its phase is %s: kubectl toolcall describe %s shows the details", call.Name, calls.PhaseOf(call), call.Name)
			}
			e := explain(call)
			if now, who, err := judgeAgain(ctx, cluster, call); err != nil {
				e.Now = "unknown: " + err.Error()
			} else {
				e.Policy, e.Now = now.policyInEnvironment(), "the same call from "+who+" would "+now.comparedWith(call.Status.Reason)
			}
			if formats.IsObject() {
				return formats.PrintReport(c.Out, "Explanation", call.Name, e)
			}
			d := cli.NewDescription(c.Out)
			d.Section("", e.fields())
			return d.Flush()
		}),
	}
	formats.Add(command)
	return command
}

// explanation says why a call was denied.
type explanation struct {
	Call      string `json:"call"`
	Requester string `json:"requester,omitempty"`
	Action    string `json:"action,omitempty"`
	Reason    string `json:"reason"`
	Message   string `json:"message,omitempty"`
	// Rule is what denied it. YouCan says what the requester can do about it, OwnerCan what the owner of the policy can.
	Rule     string `json:"rule,omitempty"`
	YouCan   string `json:"youCan,omitempty"`
	OwnerCan string `json:"ownerCan,omitempty"`
	Policy   string `json:"policy,omitempty"`
	// Documentation is the address of the section about the reason.
	Documentation string `json:"documentation"`
	// Now says what would become of the same call at this moment.
	Now string `json:"now"`
}

func explain(call *v1alpha1.ToolCall) *explanation {
	rule := denials.Rules()[call.Status.Reason]
	e := &explanation{
		Call: call.Name, Requester: call.RequesterName(), Reason: call.Status.Reason, Message: call.Status.Message,
		Rule: rule.Field, YouCan: rule.Requester, OwnerCan: rule.Owner,
		Documentation: docurl.Reason(call.Status.Reason),
	}
	if call.Status.Action != nil {
		e.Action = call.Status.Action.Summary
	}
	return e
}

func (e *explanation) fields() []cli.Field {
	return []cli.Field{
		{"Call", e.Call}, {"Requested by", e.Requester}, {"Action", e.Action},
		{"Reason", e.Reason}, {"Message", e.Message},
		{"Rule", e.Rule}, {"You can", e.YouCan}, {"The policy's owner can", e.OwnerCan},
		{"Documentation", e.Documentation}, {"Policy", e.Policy}, {"Now", e.Now},
	}
}

// judgeAgain asks about the same call once more: for its requester, if that is the user or somebody whom the user may impersonate, or
// else for the user. who is the one it was asked for.
func judgeAgain(ctx context.Context, c *cli.Cluster, call *v1alpha1.ToolCall) (v *verdict, who string, err error) {
	own, err := judge(ctx, c, call, subresourcesv1alpha1.ToolCallReviewSpec{})
	by := call.Spec.RequestedBy
	if by == nil || err == nil && own.Requester == by.Username {
		return own, "you", err
	}
	theirs, theirErr := judge(ctx, c, call, subresourcesv1alpha1.ToolCallReviewSpec{User: by})
	if theirErr == nil {
		return theirs, by.Username, nil
	}
	return own, "you", err
}

func (v *verdict) policyInEnvironment() string {
	if v.Environment == "" {
		return ""
	}
	return v.policyName() + ", of environment " + v.Environment
}

// comparedWith completes "the call would", compared with the reason of an earlier denial.
func (v *verdict) comparedWith(earlier string) string {
	switch {
	case v.Undecided != "":
		return "wait, as there is no verdict: " + v.Undecided
	case v.Approval != nil:
		return "be allowed, once it has been approved"
	case v.Denial == nil:
		return "be allowed"
	case v.Denial.Reason == earlier:
		return "be denied for the same reason"
	case v.Denial.Phase == v1alpha1.PhaseDenied:
		return "be denied: " + v.Denial.Reason + ": " + v.Denial.Message
	default:
		return "fail: " + v.Denial.Reason + ": " + v.Denial.Message
	}
}
