// Package denials explains the reasons for which calls are denied: which rule denied one, and what is allowed instead.
//
// It is a table, the same for everybody who explains a denial: the kubectl plugin and the console. It must not read a call or a
// policy; what is in them, its users show beside it.
package denials

import (
	"fmt"
	"maps"
	"regexp"

	"toolcall.dev/operator/api/v1alpha1"
)

// Rule explains a reason of a denial.
type Rule struct {
	// Field names the field of the policy, or the other rule, that denied the call.
	Field string `json:"field"`
	// Owner says what the owner of the policy can change, Requester what the requester can do.
	Owner     string `json:"owner,omitempty"`
	Requester string `json:"requester"`
}

// Rules returns the rule of each reason.
func Rules() map[string]Rule { return maps.Clone(rules) }

// ByRule begins the message about a denial by a rule of spec.rules, or by one that can't be evaluated.
func ByRule(name string) string { return fmt.Sprintf("the policy's rule %q", name) }

// byRule finds such a beginning, also where a status begins it with a capital letter.
var byRule = regexp.MustCompile(`^[Tt]he policy's rule "([-a-z0-9]+)"`)

// FieldOf names the field of the policy, or the other rule, that denied a call with a reason and a message. Of a rule of spec.rules it has
// the name. Nothing else of the message is in it.
func FieldOf(reason, message string) string {
	if found := byRule.FindStringSubmatch(message); found != nil {
		return "spec.rules: " + found[1]
	}
	return rules[reason].Field
}

var rules = map[string]Rule{
	v1alpha1.ReasonEmptyCommand:           {"a call needs a command", "", "name the program, or write the command"},
	v1alpha1.ReasonAgentNotAllowed:        {"spec.access: RBAC", "bind a Role with the verb \"use\" on tools.toolcall.dev and the name of the tool as resourceName", "use a tool that you have permission to use: kubectl auth can-i use tools.toolcall.dev/NAME"},
	v1alpha1.ReasonSessionNotAllowed:      {"a session is its creator's, and of those with the verb \"use\" on it: RBAC", "", "start a session of your own, or have a Role grant you the verb \"use\" on toolsessions with the session's name as resourceName"},
	v1alpha1.ReasonBinaryPathTraversal:    {"a program is named without a path", "", "write the name of the program without a path"},
	v1alpha1.ReasonBinaryNotBareName:      {"spec.binaries.allowed doesn't list the path", "add the absolute path to spec.binaries.allowed", "write the name of the program without a path: it is looked up in PATH"},
	v1alpha1.ReasonBinaryNotAllowed:       {"spec.binaries", "add the program to spec.binaries.allowed", "use a listed program"},
	v1alpha1.ReasonArgumentNotAllowed:     {"spec.arguments.metacharacters: Deny", "set it to Allow", "remove the character, or use --shell if the policy allows it"},
	v1alpha1.ReasonEnvNotAllowed:          {"spec.protectedEnv", "remove the variable from the list", "don't set the variable"},
	v1alpha1.ReasonShellDisabled:          {"spec.shell.enabled", "set it to true", "run one program with arguments instead of a shell command line"},
	v1alpha1.ReasonShellCommandNotAllowed: {"spec.shell.commands: Allowlisted, with spec.binaries.allowed", "add the command to spec.binaries.allowed", "use listed commands only; under enforcement Name each must be written out"},
	v1alpha1.ReasonShellNotParseable:      {"spec.shell.commands: Allowlisted", "", "write a script that bash can parse"},
	v1alpha1.ReasonCodeDisabled:           {"spec.code.enabled", "set it to true", "run a program instead of code"},
	v1alpha1.ReasonLanguageNotAllowed:     {"spec.code.languages", "add the language", "use a listed language"},
	v1alpha1.ReasonModuleNotAllowed:       {"spec.code.deniedModules", "remove the module from the list", "don't use the module"},
	v1alpha1.ReasonNetworkNotAllowed:      {"spec.network", "set its mode, which holds for code too, and list the host", "don't request network access, and leave out of network.hosts what the policy doesn't list"},
	v1alpha1.ReasonExecutionTimeTooLong:   {"spec.code.maxExecutionMilliseconds", "increase it", "request less time with --timeout"},
	v1alpha1.ReasonSourceTooLarge:         {"spec.code.maxScanBytes, spec.code.oversized", "increase the first, or set the second to ScanPrefix", "send shorter code"},
	v1alpha1.ReasonUnknownTool:            {"the documented tool names", "", "use one of those names, or structured, shell or code"},
	v1alpha1.ReasonInvalidArguments:       {"the documented tool arguments", "", "use the documented names and types"},
	v1alpha1.ReasonApprovalDenied:         {"spec.approvals, or a rule with the effect RequireApproval", "", "do what the approver's note says, and create the call again"},
	v1alpha1.ReasonApprovalExpired:        {"spec.approvals, or a rule with the effect RequireApproval", "increase expiresSeconds of the requirement", "create the call again, and ask somebody who may approve it"},
	v1alpha1.ReasonBudgetExceeded:         {"a ToolBudget, or the operator's bounds of what one requester keeps pending", "", "wait until calls of yours have started, or ask for less: the message says of what"},
	v1alpha1.ReasonDeniedByRule:           {"spec.rules, the one that the message names", "change the rule's expression, and try it with kubectl toolcall policy test", "do what the rule's message says"},
	v1alpha1.ReasonGuardError:             {"a guard that fails denies the call", "", "try again; if the error persists, tell the administrator of the operator"},
}
