package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
)

const explainLong = `Explain why a call was denied: which rule denied it, and what is allowed instead.

The last line says whether the same call would be allowed now, if you created it: the policy or your permissions may
have changed. -o prints the same as an object of kind Explanation.

The exit code is 0 if the call was denied, and 1 if it wasn't or can't be read.`

func newExplainDenial(c *cli) *cobra.Command {
	formats := newOutputFormats()
	command := &cobra.Command{
		Use:               "explain-denial NAME",
		Short:             "Explain why a call was denied and what is allowed",
		Long:              explainLong,
		Example:           "  kubectl toolcall explain-denial run-x7k2m9p4",
		Args:              requireCall,
		ValidArgsFunction: c.completeCalls(1),
		RunE: func(command *cobra.Command, args []string) error {
			return c.explainDenial(command.Context(), args[0], &formats)
		},
	}
	formats.add(command)
	return command
}

// rule explains a reason of a denial.
type rule struct {
	// field names the field of the policy, or the other rule, that denied the call.
	field string
	// owner says what the owner of the policy can change, requester what the requester can do.
	owner, requester string
}

var rules = map[string]rule{
	v1alpha1.ReasonEmptyCommand:           {"a call needs a command", "", "name the program, or write the command"},
	v1alpha1.ReasonAgentNotAllowed:        {"spec.access: RBAC", "bind a Role with the verb \"use\" on tools.toolcall.dev and the name of the tool as resourceName", "use a tool that you have permission to use: kubectl auth can-i use tools.toolcall.dev/NAME"},
	v1alpha1.ReasonSessionNotAllowed:      {"a session is its creator's, and of those with the verb \"use\" on it: RBAC", "", "start a session of your own, or have a Role grant you the verb \"use\" on toolsessions with the session's name as resourceName"},
	v1alpha1.ReasonBinaryPathTraversal:    {"a program is named without a path", "", "write the name of the program without a path"},
	v1alpha1.ReasonBinaryNotBareName:      {"spec.binaries.allowed doesn't list the path", "add the absolute path to spec.binaries.allowed", "write the name of the program without a path: it is looked up in PATH"},
	v1alpha1.ReasonBinaryNotAllowed:       {"spec.binaries", "add the program to spec.binaries.allowed", "use a listed program"},
	v1alpha1.ReasonLaunchNotAllowed:       {"spec.binaries, which also applies to programs that a listed program starts", "add the started program to spec.binaries.allowed", "call the program directly, or start a listed one"},
	v1alpha1.ReasonArgumentNotAllowed:     {"spec.arguments.metacharacters: Deny", "set it to Allow", "remove the character, or use --shell if the policy allows it"},
	v1alpha1.ReasonEnvNotAllowed:          {"spec.protectedEnv", "remove the variable from the list", "don't set the variable"},
	v1alpha1.ReasonShellDisabled:          {"spec.shell.enabled", "set it to true", "run one program with arguments instead of a shell command line"},
	v1alpha1.ReasonShellCommandNotAllowed: {"spec.shell.commands: Allowlisted, with spec.binaries.allowed", "add the command to spec.binaries.allowed", "use listed commands only; under enforcement Text each must be written out by name"},
	v1alpha1.ReasonShellNotParseable:      {"spec.shell.commands: Allowlisted", "", "write a script that bash can parse"},
	v1alpha1.ReasonCodeDisabled:           {"spec.code.enabled", "set it to true", "run a program instead of code"},
	v1alpha1.ReasonLanguageNotAllowed:     {"spec.code.languages", "add the language", "use a listed language"},
	v1alpha1.ReasonModuleNotAllowed:       {"spec.code.deniedModules", "remove the module from the list", "don't use the module"},
	v1alpha1.ReasonNetworkNotAllowed:      {"spec.code.networkAccess", "set it to true", "don't request network access"},
	v1alpha1.ReasonExecutionTimeTooLong:   {"spec.code.maxExecutionMilliseconds", "increase it", "request less time with --timeout"},
	v1alpha1.ReasonSourceTooLarge:         {"spec.code.maxScanBytes, spec.code.oversized", "increase the first, or set the second to ScanPrefix", "send shorter code"},
	v1alpha1.ReasonUnknownTool:            {"the tool names in docs/guards.md", "", "use one of those names, or structured, shell or code"},
	v1alpha1.ReasonInvalidArguments:       {"the tool arguments in docs/guards.md", "", "use the documented names and types"},
	v1alpha1.ReasonGuardError:             {"a guard that fails denies the call", "", "try again; if the error persists, tell the administrator of the operator"},
}

func (c *cli) explainDenial(ctx context.Context, name string, formats *outputFormats) error {
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
	e := explain(call)
	if now, err := evaluate(ctx, cluster, repeat(call)); err != nil {
		e.Now = "unknown: " + err.Error()
	} else {
		e.Policy, e.Now = now.policyInEnvironment(), now.comparedWith(call.Status.Reason)
	}
	if !formats.isObject() {
		w := newTable(c.Out)
		writeSection(w, section{"", e.fields()})
		return w.Flush()
	}
	object, err := reportObject("Explanation", e)
	if err != nil {
		return err
	}
	object.SetName(call.Name)
	return formats.print(c, object, []printable{object})
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
	// Now says what would become of the same call at this moment.
	Now string `json:"now"`
}

func explain(call *v1alpha1.ToolCall) *explanation {
	rule := rules[call.Status.Reason]
	e := &explanation{
		Call: call.Name, Requester: requester(call), Reason: call.Status.Reason, Message: call.Status.Message,
		Rule: rule.field, YouCan: rule.requester, OwnerCan: rule.owner,
	}
	if call.Status.Action != nil {
		e.Action = call.Status.Action.Summary
	}
	return e
}

func (e *explanation) fields() []field {
	return []field{
		{"Call", e.Call}, {"Requested by", e.Requester}, {"Action", e.Action},
		{"Reason", e.Reason}, {"Message", e.Message},
		{"Rule", e.Rule}, {"You can", e.YouCan}, {"The policy's owner can", e.OwnerCan},
		{"Policy", e.Policy}, {"Now", e.Now},
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
