package mcpserver

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"toolcall.dev/operator/api/v1alpha1"
)

// defaultTimeoutSeconds is the time limit of exec, as in its schema. Code has none, because a policy can deny code that
// requests more time than it allows.
const defaultTimeoutSeconds int32 = 120

const (
	modeShell      = "shell"
	modeStructured = "structured"
)

// variableName matches the names that the API accepts.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// execSpec builds a call from the arguments of exec.
func execSpec(raw []byte) (v1alpha1.ToolCallSpec, error) {
	a := parse(raw, "mode", "command", "binary", "args", "timeout", "environment", "working_dir", "env", "stdin")
	spec := v1alpha1.ToolCallSpec{}
	command, binary, args := a.text("command"), a.text("binary"), a.texts("args")
	switch mode := a.text("mode"); mode {
	case modeShell:
		if command == "" {
			a.fail("command", `is required in mode "shell": the command line to run`)
		}
		a.only(modeShell, "command", binary != "", "binary")
		a.only(modeShell, "command", len(args) > 0, "args")
		spec.Shell = &v1alpha1.ShellAction{Command: command}
	case modeStructured:
		if binary == "" {
			a.fail("binary", `is required in mode "structured": the name of the program to run`)
		}
		a.only(modeStructured, "binary and args", command != "", "command")
		spec.Structured = &v1alpha1.StructuredAction{Binary: binary, Args: args}
	default:
		a.fail("mode", `must be "shell", with command, or "structured", with binary and args`)
	}
	a.common(&spec)
	if spec.TimeoutSeconds == nil {
		spec.TimeoutSeconds = new(defaultTimeoutSeconds)
	}
	return spec, a.err()
}

// only records an error for an argument that belongs to the other mode.
func (a *arguments) only(mode, takes string, given bool, name string) {
	if given {
		a.fail(name, "is not used in mode %q, which takes %s: remove it or change mode", mode, takes)
	}
}

// runCodeSpec builds a call from the arguments of run_code.
func runCodeSpec(raw []byte) (v1alpha1.ToolCallSpec, error) {
	a := parse(raw, "language", "code", "network", "timeout", "environment", "working_dir", "env", "stdin")
	code := &v1alpha1.CodeAction{Language: a.text("language"), Source: a.raw("code"), NetworkAccess: a.flag("network")}
	if code.Language == "" {
		a.fail("language", "is required: the language of the code, such as python")
	}
	if code.Source == "" {
		a.fail("code", "is required: the source to run")
	}
	spec := v1alpha1.ToolCallSpec{Code: code}
	a.common(&spec)
	return spec, a.err()
}

// common reads the arguments that both tools have.
func (a *arguments) common(spec *v1alpha1.ToolCallSpec) {
	if name := a.text("environment"); name != "" {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			a.fail("environment", "must be the name of an environment, in lower case: list_environments lists them")
		}
		spec.EnvironmentRef = &v1alpha1.LocalReference{Name: name}
	}
	spec.WorkingDir = a.text("working_dir")
	spec.Stdin = a.raw("stdin")
	spec.TimeoutSeconds = a.seconds("timeout")
	spec.Env = a.variables()
}

// variables reads variables and sorts them by name, so that the same arguments give the same call.
func (a *arguments) variables() []v1alpha1.CallEnvVar {
	var env []v1alpha1.CallEnvVar
	for name, value := range a.pairs("env") {
		if !variableName.MatchString(name) {
			a.fail("env."+truncate(name, 64), "is not a valid name: use letters, digits and underscores, and don't start with a digit")
		}
		env = append(env, v1alpha1.CallEnvVar{Name: name, Value: value})
	}
	slices.SortFunc(env, func(x, y v1alpha1.CallEnvVar) int { return strings.Compare(x.Name, y.Name) })
	return env
}
