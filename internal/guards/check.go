package guards

import (
	"fmt"
	"strings"

	"toolcall.dev/operator/api/v1alpha1"
)

// Input is what one call is checked with.
type Input struct {
	Action *Action

	// Env are the call's own variables.
	Env []v1alpha1.CallEnvVar

	// Caller is who created the call; nil, or without a username, when that isn't known.
	Caller *v1alpha1.Requester

	// MayUse asks whether the caller may use a tool. It is called at most once, only under RBAC and only
	// for a known caller; an error refuses the call with GuardError. A caller who knows that the error will
	// pass asks again instead of taking that for the last word.
	MayUse func(tool string) (bool, error)

	// Shell is the environment's shell, to which a command is passed as the last argument; empty means bash -c.
	Shell []string
}

// guard is one step of a check.
type guard func(*Policy, *Input) *Denial

// Check returns nil when the call may run, else the first denial. It fails closed: a guard that panics denies.
func (p *Policy) Check(in Input) (denial *Denial) {
	defer func() {
		if recover() != nil {
			denial = guardError("a guard failed on this call; it is refused to be safe")
		}
	}()
	if in.Action == nil {
		return guardError("there is no action to check")
	}
	for _, step := range guardsOf(in.Action.Type) {
		if denial := step(p, &in); denial != nil {
			return denial
		}
	}
	return nil
}

// guardsOf is the order of the guards for each type of action.
func guardsOf(kind v1alpha1.ActionType) []guard {
	switch kind {
	case v1alpha1.ActionStructured:
		return []guard{
			(*Policy).checkBinaryGiven, (*Policy).checkAccess, (*Policy).checkBinaryName,
			(*Policy).checkBinaryListed, (*Policy).checkLaunch, (*Policy).checkArguments, (*Policy).checkEnv,
		}
	case v1alpha1.ActionShell:
		return []guard{
			(*Policy).checkShellEnabled, (*Policy).checkCommandGiven, (*Policy).checkAccess,
			(*Policy).checkShellCommands, (*Policy).checkEnv,
		}
	case v1alpha1.ActionCode:
		return []guard{
			(*Policy).checkCodeEnabled, (*Policy).checkLanguage, (*Policy).checkAccess,
			(*Policy).checkSource, (*Policy).checkNetworkAsked, (*Policy).checkTime, (*Policy).checkEnv,
		}
	default:
		return []guard{func(*Policy, *Input) *Denial {
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
	if in.Caller == nil || in.Caller.Username == "" {
		return deny(v1alpha1.ReasonAgentNotAllowed,
			"who created this call is not known (requestedBy.username is empty), and access RBAC lets only known callers use %s: "+
				"install the admission policies, or set the policy's access to Open", quote(tool))
	}
	if in.MayUse == nil {
		return guardError("access RBAC has nobody to ask; the call is refused to be safe")
	}
	may, err := in.MayUse(tool)
	if err != nil {
		return guardError("whether " + quote(in.Caller.Username) + " may use " + quote(tool) + " could not be found out; the call is refused to be safe, try again")
	}
	if !may {
		return deny(v1alpha1.ReasonAgentNotAllowed,
			"%s may not use the tool %s in this namespace (access RBAC): it needs the verb \"use\" on tools.toolcall.dev with that resourceName, or another tool",
			quote(in.Caller.Username), quote(tool))
	}
	return nil
}

func (p *Policy) checkEnv(in *Input) *Denial {
	for _, variable := range in.Env {
		if !isName(variable.Name) {
			return deny(v1alpha1.ReasonEnvNotAllowed,
				"variable name %s is not allowed: use letters, digits and underscores, not starting with a digit", quote(variable.Name))
		}
		if p.protected.has(variable.Name) {
			return deny(v1alpha1.ReasonEnvNotAllowed,
				"the call may not set the variable %s: protectedEnv keeps it because it can make another program run; leave it out of env", variable.Name)
		}
		if p.launchEnv.has(variable.Name) && p.holdsLaunches(in.Action.Type) {
			return deny(v1alpha1.ReasonEnvNotAllowed,
				"the call may not set the variable %s: it can make a listed program run another one, and the policy holds calls to binaries.allowed; leave it out of env", variable.Name)
		}
		if strings.Contains(variable.Value, "\x00") {
			return deny(v1alpha1.ReasonEnvNotAllowed, "the value of variable %s holds a NUL byte: remove it", variable.Name)
		}
	}
	return nil
}

// holdsLaunches says whether what the call's programs start is held to the list.
func (p *Policy) holdsLaunches(kind v1alpha1.ActionType) bool {
	return kind == v1alpha1.ActionStructured && p.binaries.enforced || kind == v1alpha1.ActionShell && p.allowlisted
}

// isName says whether s can be the name of a shell variable.
func isName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
