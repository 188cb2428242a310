package mcpserver

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/network"
)

// defaultTimeoutSeconds is the time limit of commands, as in the schemas. Code has none, because a policy can deny code
// that requests more time than it allows.
const defaultTimeoutSeconds int32 = 120

const (
	modeShell      = "shell"
	modeStructured = "structured"
)

var (
	// variableName matches the names that the API accepts.
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// requestID matches the ids that clients can give calls. Only what JSON carries unchanged is allowed, so two
	// different ids never become one.
	requestID = regexp.MustCompile(`^[!-~]{1,256}$`)
)

// callRequest is a call as the arguments of a tool describe it.
type callRequest struct {
	spec v1alpha1.ToolCallSpec
	// id is the client's name for the call, empty if it has none.
	id string
}

// specOf builds a call from the arguments of a tool.
type specOf func(raw []byte) (*callRequest, error)

// commonArguments are those of every tool that creates a call.
var commonArguments = []string{"session", "environment", "timeout_seconds", "working_dir", "env", "request_id"}

// processArguments are those of every tool that starts a process, besides the common ones.
var processArguments = []string{"stdin", "network_hosts"}

// runCommandSpec builds a call from the arguments of run_command.
func runCommandSpec(raw []byte) (*callRequest, error) {
	a := parse(raw, slices.Concat([]string{"command"}, processArguments, commonArguments)...)
	r := &callRequest{spec: v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: a.required("command", "the command line to run")}}}
	a.process(r)
	r.limit()
	return r, a.err()
}

// runProgramSpec builds a call from the arguments of run_program.
func runProgramSpec(raw []byte) (*callRequest, error) {
	a := parse(raw, slices.Concat([]string{"program", "args"}, processArguments, commonArguments)...)
	r := &callRequest{spec: v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{
		Binary: a.required("program", "the name of the program to run"), Args: a.texts("args"),
	}}}
	a.process(r)
	r.limit()
	return r, a.err()
}

// execSpec builds a call from the arguments of exec, the deprecated name of run_command and run_program.
func execSpec(raw []byte) (*callRequest, error) {
	a := parse(raw, slices.Concat([]string{"mode", "command", "binary", "args", "timeout"}, processArguments, commonArguments)...)
	r := &callRequest{}
	command, binary, args := a.text("command"), a.text("binary"), a.texts("args")
	switch mode := a.text("mode"); mode {
	case modeShell:
		if command == "" {
			a.fail("command", `is required in mode "shell": the command line to run`)
		}
		a.only(modeShell, "command", binary != "", "binary")
		a.only(modeShell, "command", len(args) > 0, "args")
		r.spec.Shell = &v1alpha1.ShellAction{Command: command}
	case modeStructured:
		if binary == "" {
			a.fail("binary", `is required in mode "structured": the name of the program to run`)
		}
		a.only(modeStructured, "binary and args", command != "", "command")
		r.spec.Structured = &v1alpha1.StructuredAction{Binary: binary, Args: args}
	default:
		a.fail("mode", `must be "shell", with command, or "structured", with binary and args`)
	}
	a.process(r)
	if older := a.seconds("timeout"); r.spec.TimeoutSeconds == nil {
		r.spec.TimeoutSeconds = older
	}
	r.limit()
	return r, a.err()
}

// only records an error for an argument that belongs to the other mode.
func (a *arguments) only(mode, takes string, given bool, name string) {
	if given {
		a.fail(name, "is not used in mode %q, which takes %s: remove it or change mode", mode, takes)
	}
}

// runCodeSpec builds a call from the arguments of run_code.
func runCodeSpec(raw []byte) (*callRequest, error) {
	a := parse(raw, slices.Concat([]string{"language", "code", "network"}, processArguments, commonArguments)...)
	code := &v1alpha1.CodeAction{Language: a.text("language"), Source: a.raw("code"), NetworkAccess: a.flag("network")}
	if code.Language == "" {
		a.fail("language", "is required: the language of the code, such as python")
	}
	if code.Source == "" {
		a.fail("code", "is required: the source to run")
	}
	r := &callRequest{spec: v1alpha1.ToolCallSpec{Code: code}}
	a.process(r)
	return r, a.err()
}

// limit sets the default time limit of a command.
func (r *callRequest) limit() {
	if r.spec.TimeoutSeconds == nil {
		r.spec.TimeoutSeconds = new(defaultTimeoutSeconds)
	}
}

// required reads a text that can't be empty.
func (a *arguments) required(name, what string) string {
	text := a.text(name)
	if text == "" {
		a.fail(name, "is required: %s", what)
	}
	return text
}

// process reads the arguments of tools that start a process.
func (a *arguments) process(r *callRequest) {
	a.common(r)
	r.spec.Stdin = a.raw("stdin")
	if hosts := a.networkHosts(); len(hosts) > 0 {
		r.spec.Network = &v1alpha1.CallNetwork{Hosts: hosts}
	}
}

// maxNetworkHosts is the largest number of hosts that the API allows.
const maxNetworkHosts = 64

// networkHosts reads the hosts that a call may reach. Whether the policy allows them, the operator decides.
func (a *arguments) networkHosts() []string {
	hosts := a.texts("network_hosts")
	if len(hosts) > maxNetworkHosts {
		a.fail("network_hosts", "has %d hosts, and may have %d: name networks or wildcards instead of single hosts", len(hosts), maxNetworkHosts)
		return nil
	}
	for i, host := range hosts {
		_, err := network.Narrow(&network.Rules{Mode: network.Open}, []string{host})
		var wrong *network.Error
		if errors.As(err, &wrong) {
			a.fail(fmt.Sprintf("network_hosts[%d]", i), "%s", wrong.Problem)
		}
	}
	return hosts
}

// common reads the arguments that every tool which creates a call has.
func (a *arguments) common(r *callRequest) {
	if name := a.sessionName(); name != "" {
		r.spec.SessionRef = &v1alpha1.SessionReference{Name: name}
	}
	if name := a.environment(); name != "" {
		r.spec.EnvironmentRef = &v1alpha1.LocalReference{Name: name}
		if r.spec.SessionRef != nil {
			a.fail("environment", "is not used together with session: a session has the environment that it was started in")
		}
	}
	r.spec.WorkingDir = a.text("working_dir")
	r.spec.TimeoutSeconds = a.seconds("timeout_seconds")
	r.spec.Env = a.variables()
	r.id = a.requestID()
}

func (a *arguments) environment() string {
	return a.objectName("environment", "an environment", "list_environments lists them")
}

func (a *arguments) sessionName() string {
	return a.objectName("session", "a session", "start_session answers with it")
}

// objectName reads the name of an object of Kubernetes.
func (a *arguments) objectName(argument, kind, where string) string {
	name := a.text(argument)
	if name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		a.fail(argument, "must be the name of %s, in lower case: %s", kind, where)
	}
	return name
}

func (a *arguments) requestID() string {
	id := a.raw("request_id")
	if id != "" && !requestID.MatchString(id) {
		a.fail("request_id", "must be at most 256 letters, digits and punctuation marks of ASCII, without spaces")
	}
	return id
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
