package plugin

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

// refusalText explains the rules by which a program is refused.
var refusalText = map[string]string{
	"NotListed":      "the policy doesn't list it",
	"Interpreter":    "it is the interpreter of a script, and the policy doesn't list it",
	"Loader":         "a loader runs any file, so it can't be started by hand",
	"Name":           "the policy lists this multi-call program under other names",
	"Unnamed":        "the file has no name: it is in memory, or was removed",
	"Changed":        "another program than the one asked for was about to run, and its process was killed",
	"Unreadable":     "its process can't be looked at",
	"UnreadableFile": "the call's user may not read it",
}

// programFields list the programs that a call executed, and those that were refused to it.
func programFields(s *v1alpha1.ToolCallStatus) []field {
	var fields []field
	for _, p := range s.Executed {
		fields = append(fields, field{"Executed", p.Path + times(p.Count)})
	}
	if s.OmittedExecuted > 0 {
		fields = append(fields, field{"Executed", fmt.Sprintf("and other programs%s", times(s.OmittedExecuted))})
	}
	for _, p := range s.Refused {
		rule := p.Rule
		if text := refusalText[rule]; text != "" {
			rule += ": " + text
		}
		fields = append(fields, field{"Refused", fmt.Sprintf("%s%s (%s)", p.Path, times(p.Count), rule)})
	}
	if s.OmittedRefused > 0 {
		fields = append(fields, field{"Refused", fmt.Sprintf("and other programs%s", times(s.OmittedRefused))})
	}
	return fields
}

func times(count int64) string {
	if count == 1 {
		return ", once"
	}
	return fmt.Sprintf(", %d times", count)
}

// isolationFields say which walls held a call's processes.
func isolationFields(i *v1alpha1.Isolation) []field {
	if i == nil {
		return nil
	}
	landlock := "none"
	if i.LandlockABI > 0 {
		landlock = fmt.Sprintf("version %d", i.LandlockABI)
	}
	user, namespace := "", ""
	if i.User != nil {
		user = fmt.Sprint(*i.User)
	}
	if i.UserNamespace != nil {
		namespace = map[bool]string{true: "of its own", false: "none, as far as can be seen inside"}[*i.UserNamespace]
	}
	return []field{
		{"User", user}, {"User namespace", namespace}, {"Seccomp", string(i.Seccomp)}, {"Runtime class", i.RuntimeClass},
		{"Network", heldNetwork(i)},
		{"Programs", heldPrograms(i)}, {"Reading", heldByKernel(i.Reads)}, {"Writing", heldByKernel(i.Writes)},
		{"Signals", heldByKernel(i.Signals)}, {"Landlock", landlock},
		{"Told apart by name only", strings.Join(i.NamesOnly, ", ")},
		{"Runs applets unseen", strings.Join(i.UnheldApplets, ", ")},
		{"Listed and writable", strings.Join(i.Writable, ", ")},
		{"Listed and not found", strings.Join(i.NotFound, ", ")},
	}
}

func heldNetwork(i *v1alpha1.Isolation) string {
	if i.OpenUDP {
		return string(i.Network) + ", but for UDP, which is open"
	}
	return string(i.Network)
}

func heldPrograms(i *v1alpha1.Isolation) string {
	if i.WeakPrograms {
		return "weak: names that were written out were compared with the list"
	}
	return heldByKernel(i.Programs)
}

func heldByKernel(held bool) string {
	if held {
		return "held by the kernel"
	}
	return "not held"
}

// wallFields say which walls would hold the call's processes.
func (v *evaluation) wallFields() []field {
	fields := []field{{"Programs", v.programWall()}, {"Reading", "not held"}, {"Writing", "not held"}}
	if r := v.decision.Rules; r != nil {
		switch {
		case r.ReadPaths != nil:
			fields[1].value = "held by the kernel: " + orText(strings.Join(slices.Concat(r.ReadPaths, r.WritePaths), ", "), "no path") + ", and what programs need"
		case r.Programs != nil:
			fields[1].value = "not held, except that programs which aren't listed can't be read"
		}
		if r.WritePaths != nil {
			fields[2].value = "held by the kernel: " + orText(strings.Join(r.WritePaths, ", "), "no path") + ", devices and /dev/shm"
		}
		fields = append(fields, field{"Signals", "held by the kernel, from Linux 6.12 on"})
	}
	return append(fields, field{"Network", v.network()})
}

// programWall says what holds the list of programs for the call.
func (v *evaluation) programWall() string {
	const none = "not held: any program may start"
	if r := v.decision.Rules; r != nil && r.Programs != nil {
		text := "held by the kernel: " + joinFirst(r.Programs.Allowed)
		if own := r.Programs.Own; own != "" && !slices.Contains(r.Programs.Allowed, own) {
			text += ", and " + own + ", which the environment gives the call: it runs though it isn't listed"
		}
		if r.Programs.AllowMultiCall {
			text += "; a multi-call program that runs its applets without executing them may run all of them"
		}
		if r.Programs.AllowWritable {
			text += "; what the call writes to a listed path may start too"
		}
		return text
	}
	spec := v.policySpec()
	binaries := ptr.Deref(spec.Binaries, v1alpha1.BinariesPolicy{})
	shell := ptr.Deref(spec.Shell, v1alpha1.ShellPolicy{})
	switch {
	case v.action.Type == v1alpha1.ActionStructured && binaries.Mode == v1alpha1.BinariesEnforced,
		v.action.Type == v1alpha1.ActionShell && shell.Commands == v1alpha1.ShellAllowlisted:
		return "weak: the names that the call has written out are compared with the list, and nothing holds what a listed program starts: " + joinFirst(binaries.Allowed)
	case v.action.Type == v1alpha1.ActionStructured && len(binaries.Allowed) > 0:
		return "not held: the call itself names a listed program, which may start any other"
	default:
		return none
	}
}

// policySpec is what the call's policy says, nothing for the built-in defaults.
func (v *evaluation) policySpec() *v1alpha1.ExecutionPolicySpec {
	policy, err := v.snapshot.Policies.For(v.snapshot.Effective())
	if err != nil || policy == nil {
		return &v1alpha1.ExecutionPolicySpec{}
	}
	return &policy.Spec
}

// warningFields are what is weaker in the call's policy than it looks.
func (v *evaluation) warningFields() []field {
	policy, err := v.snapshot.Policies.For(v.snapshot.Effective())
	if err != nil {
		return nil
	}
	compiled, err := decide.CompilePolicy(policy)
	if err != nil {
		return nil
	}
	var fields []field
	for _, warning := range compiled.Warnings() {
		fields = append(fields, field{"Warning", warning})
	}
	return fields
}
