package guards

import (
	"fmt"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"toolcall.dev/operator/api/v1alpha1"
)

// Input is what one call is checked with.
type Input struct {
	Action *Action

	// Env are the call's own variables.
	Env []v1alpha1.CallEnvVar

	// Collect are the globs of files to keep.
	Collect []string

	// Requester is who created the call; nil, or without a username, when unknown.
	Requester *v1alpha1.Requester

	// MayUse reports whether the requester may use a tool. It is called at most once, only under RBAC and only for a
	// known requester. An error denies the call with GuardError; whoever knows that the error is temporary calls Check
	// again.
	MayUse func(tool string) (bool, error)

	// Shell is the environment's shell, to which a command is passed as the last argument; empty means bash -c.
	Shell []string
}

// guard is one step of a check.
type guard func(*Input) *Denial

// Check returns nil if the call may run, and otherwise the first denial. A guard that panics denies.
func (p *Policy) Check(in Input) (denial *Denial) {
	defer func() {
		if recover() != nil {
			denial = guardError("a guard failed on this call; it is denied to be safe")
		}
	}()
	if in.Action == nil {
		return guardError("there is no action to check")
	}
	for _, step := range p.guardsFor(in.Action.Type) {
		if denial := step(&in); denial != nil {
			return denial
		}
	}
	return nil
}

// guardsFor returns the guards for a type of action, in the order in which they run.
func (p *Policy) guardsFor(kind v1alpha1.ActionType) []guard {
	switch kind {
	case v1alpha1.ActionStructured:
		return []guard{
			checkBinaryGiven, p.checkAccess, p.binaries.checkName,
			p.binaries.checkListed, p.checkArguments, p.checkEnv, p.files.checkCollect,
		}
	case v1alpha1.ActionShell:
		return []guard{
			p.checkShellEnabled, checkCommandGiven, p.checkAccess,
			p.checkShellCommands, p.checkEnv, p.files.checkCollect,
		}
	case v1alpha1.ActionCode:
		return []guard{
			p.code.checkEnabled, p.code.checkLanguage, p.checkAccess,
			p.code.checkSource, p.code.checkNetworkAsked, p.code.checkTime, p.checkEnv, p.files.checkCollect,
		}
	case v1alpha1.ActionFile:
		return []guard{checkFile, p.checkAccess, p.checkEnv, p.files.checkCollect}
	default:
		return []guard{func(*Input) *Denial {
			return guardError("action type " + quote(string(kind)) + " is not known")
		}}
	}
}

func guardError(message string) *Denial {
	return &Denial{Reason: v1alpha1.ReasonGuardError, Message: message}
}

func deny(reason, format string, args ...any) *Denial {
	return &Denial{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func (p *Policy) checkAccess(in *Input) *Denial {
	if p.access == v1alpha1.AccessOpen {
		return nil
	}
	tool := in.Action.Tool()
	if in.Requester == nil || in.Requester.Username == "" {
		return deny(v1alpha1.ReasonAgentNotAllowed,
			"the requester of this call is unknown (requestedBy.username is empty), and access RBAC lets only known requesters use %s: "+
				"install the admission policies, or set the policy's access to Open", quote(tool))
	}
	if in.MayUse == nil {
		return guardError("access RBAC is set, but rights can't be checked here; the call is denied to be safe")
	}
	may, err := in.MayUse(tool)
	if err != nil {
		return guardError("whether " + quote(in.Requester.Username) + " may use " + quote(tool) + " could not be checked; the call is denied to be safe, try again")
	}
	if !may {
		others := p.othersListed(in.Action)
		hint := ""
		if len(others) > 0 {
			hint = ", of which the policy allows " + joinNames(others)
		}
		return deny(v1alpha1.ReasonAgentNotAllowed,
			"%s may not use the tool %s in this namespace (access RBAC): it needs the verb \"use\" on tools.toolcall.dev with that resourceName, or another tool%s",
			quote(in.Requester.Username), quote(tool), hint+wordsHint(tool)).instead(others)
	}
	return nil
}

// othersListed are the other tools of an action's kind that the policy lists.
func (p *Policy) othersListed(action *Action) []string {
	var listed []string
	switch action.Type {
	case v1alpha1.ActionStructured:
		listed = p.binaries.names
	case v1alpha1.ActionCode:
		listed = p.code.languages
	case v1alpha1.ActionShell, v1alpha1.ActionFile:
	}
	return slices.DeleteFunc(slices.Clone(listed), func(name string) bool { return name == action.Tool() })
}

// Protects says whether a call may not set a variable, as it can change which program runs.
func (p *Policy) Protects(name string) bool { return matchesName(p.protectedEnv, name) }

func (p *Policy) checkEnv(in *Input) *Denial {
	for _, variable := range in.Env {
		if !syntax.ValidName(variable.Name) {
			return deny(v1alpha1.ReasonEnvNotAllowed,
				"variable name %s is not allowed: use letters, digits and underscores, not starting with a digit", quote(variable.Name))
		}
		if p.Protects(variable.Name) {
			return deny(v1alpha1.ReasonEnvNotAllowed,
				"the call may not set the variable %s: the policy's protectedEnv lists it because it can change which program runs; leave it out of env", variable.Name)
		}
		if strings.Contains(variable.Value, "\x00") {
			return deny(v1alpha1.ReasonEnvNotAllowed, "the value of variable %s contains a NUL byte: remove it", variable.Name)
		}
	}
	return nil
}
