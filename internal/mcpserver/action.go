package mcpserver

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"toolcall.dev/operator/api/v1alpha1"
)

// defaultTimeoutSeconds of exec, as its schema says. Code without a timeout is left to the policy, which may
// refuse code that asks for more time than it gives.
const defaultTimeoutSeconds int32 = 120

const (
	modeShell      = "shell"
	modeStructured = "structured"
)

// variableName is what the API accepts as a variable's name.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// execSpec makes a call of exec's arguments.
func execSpec(raw []byte) (v1alpha1.ToolCallSpec, error) {
	a := parse(raw, "mode", "command", "binary", "args", "timeout", "environment", "working_dir", "env", "stdin")
	spec := v1alpha1.ToolCallSpec{}
	command, binary, args := a.text("command"), a.text("binary"), a.texts("args")
	switch mode := a.text("mode"); mode {
	case modeShell:
		if command == "" {
			a.note("command", `is required in mode "shell": the command line to run`)
		}
		a.only(modeShell, "command", binary != "", "binary")
		a.only(modeShell, "command", len(args) > 0, "args")
		spec.Shell = &v1alpha1.ShellAction{Command: command}
	case modeStructured:
		if binary == "" {
			a.note("binary", `is required in mode "structured": the bare name of the program to run`)
		}
		a.only(modeStructured, "binary and args", command != "", "command")
		spec.Structured = &v1alpha1.StructuredAction{Binary: binary, Args: args}
	default:
		a.note("mode", `must be "shell", with command, or "structured", with binary and args`)
	}
	a.place(&spec)
	if spec.TimeoutSeconds == nil {
		spec.TimeoutSeconds = new(defaultTimeoutSeconds)
	}
	return spec, a.err()
}

// only notes an argument that belongs to the other mode.
func (a *arguments) only(mode, takes string, given bool, name string) {
	if given {
		a.note(name, "is not used in mode %q, which takes %s: leave it out or change mode", mode, takes)
	}
}

// runCodeSpec makes a call of run_code's arguments.
func runCodeSpec(raw []byte) (v1alpha1.ToolCallSpec, error) {
	a := parse(raw, "language", "code", "network", "timeout", "environment", "working_dir", "env", "stdin")
	code := &v1alpha1.CodeAction{Language: a.text("language"), Source: a.raw("code"), NetworkAccess: a.flag("network")}
	if code.Language == "" {
		a.note("language", "is required: the language of the code, such as python")
	}
	if code.Source == "" {
		a.note("code", "is required: the source to run")
	}
	spec := v1alpha1.ToolCallSpec{Code: code}
	a.place(&spec)
	return spec, a.err()
}

// place reads what both tools have: where, with what and for how long a call runs.
func (a *arguments) place(spec *v1alpha1.ToolCallSpec) {
	if name := a.text("environment"); name != "" {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			a.note("environment", "must be the name of an environment, in lower case: list_environments has them")
		}
		spec.EnvironmentRef = &v1alpha1.LocalReference{Name: name}
	}
	spec.WorkingDir = a.text("working_dir")
	spec.Stdin = a.raw("stdin")
	spec.TimeoutSeconds = a.seconds("timeout")
	spec.Env = a.variables()
}

// variables are sorted by name, so that the same arguments make the same call.
func (a *arguments) variables() []v1alpha1.CallEnvVar {
	var env []v1alpha1.CallEnvVar
	for name, value := range a.pairs("env") {
		if !variableName.MatchString(name) {
			a.note("env."+shorten(name, 64), "is not a variable's name: use letters, digits and underscores, and no digit first")
		}
		env = append(env, v1alpha1.CallEnvVar{Name: name, Value: value})
	}
	slices.SortFunc(env, func(x, y v1alpha1.CallEnvVar) int { return strings.Compare(x.Name, y.Name) })
	return env
}
