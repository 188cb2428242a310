package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
)

const explainLong = `Explain why a call was denied: what was refused, by which rule, and what would pass.

The last part says what would become of the same call now, if you created it: the policy, or your rights, may have
changed since.`

func newExplainDenial(s *session) *cobra.Command {
	return &cobra.Command{
		Use:               "explain-denial NAME",
		Short:             "Explain why a call was denied and what would pass",
		Long:              explainLong,
		Example:           "  kubectl toolcall explain-denial run-x7k2m9p4",
		Args:              oneCall,
		ValidArgsFunction: s.completeCalls(1),
		RunE: func(command *cobra.Command, args []string) error {
			return s.explainDenial(command.Context(), args[0])
		},
	}
}

// rule is what a reason of a denial comes from.
type rule struct {
	// field of the policy, or another place; who can mend it; what the caller can do.
	field, owner, caller string
}

var rules = map[string]rule{
	v1alpha1.ReasonEmptyCommand:           {"every call runs something", "", "name the program, or write the command"},
	v1alpha1.ReasonAgentNotAllowed:        {"spec.access: RBAC", "bind a Role with the verb \"use\" on tools.toolcall.dev, the tool's name as resourceName", "use a tool that you may use: kubectl auth can-i use tools/NAME"},
	v1alpha1.ReasonBinaryPathTraversal:    {"a program is a bare name", "", "write the program's name without a path"},
	v1alpha1.ReasonBinaryNotBareName:      {"a program is a bare name", "", "write the program's name without a path: it is looked up in PATH"},
	v1alpha1.ReasonBinaryNotAllowed:       {"spec.binaries", "add the program to spec.binaries.allowed", "use a program that is listed"},
	v1alpha1.ReasonLaunchNotAllowed:       {"spec.binaries, which also holds what a listed program starts", "add the program that is started to spec.binaries.allowed", "call the program directly, or start a listed one"},
	v1alpha1.ReasonArgumentNotAllowed:     {"spec.arguments.metacharacters: Deny", "set it to Allow", "leave the character out, or use --shell if the policy allows that"},
	v1alpha1.ReasonEnvNotAllowed:          {"spec.protectedEnv", "take the variable off the list", "leave the variable out"},
	v1alpha1.ReasonShellDisabled:          {"spec.shell.enabled", "set it to true", "run one program with its arguments instead of a shell line"},
	v1alpha1.ReasonShellCommandNotAllowed: {"spec.shell.commands: Allowlisted, with spec.binaries.allowed", "add the command to spec.binaries.allowed", "use listed commands, each by a name that stands in the script"},
	v1alpha1.ReasonShellNotParseable:      {"spec.shell.commands: Allowlisted", "", "write a script that bash can parse"},
	v1alpha1.ReasonCodeDisabled:           {"spec.code.enabled", "set it to true", "run a program instead of a snippet"},
	v1alpha1.ReasonLanguageNotAllowed:     {"spec.code.languages", "add the language", "use a language that is listed"},
	v1alpha1.ReasonModuleNotAllowed:       {"spec.code.deniedModules", "take the module off the list", "do without the module"},
	v1alpha1.ReasonNetworkNotAllowed:      {"spec.code.networkAccess", "set it to true", "do without the network"},
	v1alpha1.ReasonExecutionTimeTooLong:   {"spec.code.maxExecutionMilliseconds", "raise it", "ask for less time with --timeout"},
	v1alpha1.ReasonSourceTooLarge:         {"spec.code.maxScanBytes, spec.code.oversized", "raise the first, or set the second to ScanPrefix", "send a shorter snippet"},
	v1alpha1.ReasonUnknownTool:            {"the names that docs/guards.md lists", "", "use one of those names, or structured, shell or code"},
	v1alpha1.ReasonInvalidArguments:       {"the arguments that docs/guards.md lists", "", "send arguments of the right name and type"},
	v1alpha1.ReasonGuardError:             {"what can't be judged is refused", "", "try again; tell whoever runs the operator if it stays"},
}

func (s *session) explainDenial(ctx context.Context, name string) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	call, err := c.getCall(ctx, name)
	if err != nil {
		return err
	}
	if call.Status.Phase != v1alpha1.PhaseDenied {
		return fmt.Errorf("call %s wasn't denied, it is %s: kubectl toolcall describe %s shows why", name, phaseOf(call), name)
	}
	w := newTable(s.Out)
	writeSection(w, section{"", explanation(call)})
	again, err := foresee(ctx, c, repeated(call))
	if err != nil {
		fmt.Fprintf(w, "Now:\tit can't be told: %s\n", oneLine(err.Error()))
		return w.Flush()
	}
	fmt.Fprintf(w, "Policy:\t%s\n", oneLine(again.policyOf()))
	fmt.Fprintf(w, "Now:\t%s\n", oneLine(again.inShort(call.Status.Reason)))
	return w.Flush()
}

func explanation(call *v1alpha1.ToolCall) []field {
	from := rules[call.Status.Reason]
	action := ""
	if call.Status.Action != nil {
		action = call.Status.Action.Summary
	}
	return []field{
		{"Call", call.Name}, {"Requested by", requester(call)}, {"Action", action},
		{"Reason", call.Status.Reason}, {"Message", call.Status.Message},
		{"Rule", from.field}, {"You can", from.caller}, {"The policy's owner can", from.owner},
	}
}

// repeated is the same call anew.
func repeated(call *v1alpha1.ToolCall) *v1alpha1.ToolCall {
	again := &v1alpha1.ToolCall{Spec: *call.Spec.DeepCopy()}
	again.Namespace, again.GenerateName = call.Namespace, "run-"
	again.Spec.RequestedBy, again.Spec.Cancel = nil, false
	return again
}

func (v *verdict) policyOf() string {
	env := v.where.Effective()
	if env == nil {
		return ""
	}
	return v.policyName(env) + ", of environment " + env.Name
}

// inShort compares a verdict with the reason of a former denial.
func (v *verdict) inShort(before string) string {
	switch {
	case v.unknown != nil:
		return "it can't be told: " + v.unknown.Error()
	case v.refusal == nil:
		return "the same call from you would be allowed"
	case v.refusal.Reason == before:
		return "the same call from you would be denied for the same reason"
	case v.refusal.Denied:
		return "the same call from you would be denied: " + v.refusal.Error()
	default:
		return "the same call from you would fail: " + v.refusal.Error()
	}
}
