package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/denials"
)

const explainLong = `Explain why a call was denied: which rule denied it, and what is allowed instead.

The last line says whether the same call would be allowed now, if you created it: the policy or your permissions may
have changed.

The exit code is 0 if the call was denied, and 1 if it wasn't or can't be read.`

func newExplainDenial(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:               "explain-denial NAME",
		Short:             "Explain why a call was denied and what is allowed",
		Long:              explainLong,
		Example:           "  kubectl toolcall explain-denial run-x7k2m9p4",
		Args:              requireCall,
		ValidArgsFunction: c.completeCalls(1),
		RunE: func(command *cobra.Command, args []string) error {
			return c.explainDenial(command.Context(), args[0])
		},
	}
}

func (c *cli) explainDenial(ctx context.Context, name string) error {
	cluster, err := c.connect()
	if err != nil {
		return err
	}
	call, err := cluster.getCall(ctx, name)
	if err != nil {
		return err
	}
	if call.Status.Phase != v1alpha1.PhaseDenied {
		return fmt.Errorf("call %s was not denied, its phase is %s: kubectl toolcall describe %s shows the details", name, phaseOf(call), name)
	}
	w := newTable(c.Out)
	writeSection(w, section{"", denialFields(call)})
	now, err := evaluate(ctx, cluster, repeat(call))
	if err != nil {
		writeSection(w, section{"", []field{{"Now", "unknown: " + err.Error()}}})
		return w.Flush()
	}
	writeSection(w, section{"", []field{{"Policy", now.policyInEnvironment()}, {"Now", now.comparedWith(call.Status.Reason)}}})
	return w.Flush()
}

func denialFields(call *v1alpha1.ToolCall) []field {
	rule := denials.Rules()[call.Status.Reason]
	action := ""
	if call.Status.Action != nil {
		action = call.Status.Action.Summary
	}
	return []field{
		{"Call", call.Name}, {"Requested by", requester(call)}, {"Action", action},
		{"Reason", call.Status.Reason}, {"Message", call.Status.Message},
		{"Rule", rule.Field}, {"You can", rule.Requester}, {"The policy's owner can", rule.Owner},
	}
}

// repeat returns the same call under a new name.
func repeat(call *v1alpha1.ToolCall) *v1alpha1.ToolCall {
	again := &v1alpha1.ToolCall{Spec: *call.Spec.DeepCopy()}
	again.Namespace, again.GenerateName = call.Namespace, "run-"
	again.Spec.RequestedBy, again.Spec.Cancel = nil, false
	return again
}

func (v *evaluation) policyInEnvironment() string {
	env := v.snapshot.Effective()
	if env == nil {
		return ""
	}
	return v.policyName(env) + ", of environment " + env.Name
}

// comparedWith compares the evaluation with the reason of an earlier denial.
func (v *evaluation) comparedWith(earlier string) string {
	switch {
	case v.unknown != nil:
		return "unknown: " + v.unknown.Error()
	case v.refusal == nil:
		return "the same call from you would be allowed"
	case v.refusal.Reason == earlier:
		return "the same call from you would be denied for the same reason"
	case v.refusal.Denied:
		return "the same call from you would be denied: " + v.refusal.Error()
	default:
		return "the same call from you would fail: " + v.refusal.Error()
	}
}
