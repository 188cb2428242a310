package environments

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

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
	return formats.Add(&cobra.Command{
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
			e := explain(ctx, cluster, call)
			if formats.IsObject() {
				return formats.PrintReport(c.Out, "Explanation", call.Name, e.object())
			}
			d := cli.NewDescription(c.Out)
			for _, part := range e {
				d.Section("", []cli.Field{{part.title, part.text}})
			}
			return d.Flush()
		}),
	})
}

// explanation says why a call was denied: each part for programs and for people.
type explanation []struct{ key, title, text string }

func explain(ctx context.Context, c *cli.Cluster, call *v1alpha1.ToolCall) explanation {
	policy, now := "", ""
	if v, who, err := judgeAgain(ctx, c, call); err != nil {
		now = "unknown: " + err.Error()
	} else {
		policy, now = v.policyInEnvironment(), "the same call from "+who+" would "+v.comparedWith(call.Status.Reason)
	}
	rule := denials.Rules()[call.Status.Reason]
	return explanation{
		{"call", "Call", call.Name}, {"requester", "Requested by", call.RequesterName()},
		{"action", "Action", ptr.Deref(call.Status.Action, v1alpha1.MappedAction{}).Summary},
		{"reason", "Reason", call.Status.Reason}, {"message", "Message", call.Status.Message},
		// What denied it, and what the requester and the owner of the policy can do about it.
		{"rule", "Rule", rule.Field}, {"youCan", "You can", rule.Requester}, {"ownerCan", "The policy's owner can", rule.Owner},
		{"documentation", "Documentation", docurl.Reason(call.Status.Reason)},
		{"policy", "Policy", policy}, {"now", "Now", now},
	}
}

// object has the parts that aren't empty by their keys.
func (e explanation) object() map[string]string {
	object := map[string]string{}
	for _, part := range e {
		if part.text != "" {
			object[part.key] = part.text
		}
	}
	return object
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
