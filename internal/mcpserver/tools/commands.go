package tools

import (
	"errors"
	"fmt"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/network"
)

const (
	// defaultTimeoutSeconds is the time limit of commands, as in the schemas. Code has none, because a policy can deny code
	// that requests more time than it allows.
	defaultTimeoutSeconds int32 = 120
	// maxNetworkHosts is the largest number of hosts that the API allows.
	maxNetworkHosts = 64

	// maxCollect is the largest number of globs that the API allows.
	maxCollect = 16
)

var commandTimeout = fmt.Sprintf("time limit, %d if absent", defaultTimeoutSeconds)

// CallRequest is a call as the arguments of a tool describe it.
type CallRequest struct {
	Spec v1alpha1.ToolCallSpec
	// ID is the client's name for the call, empty if it has none.
	ID string
}

// RunCommand runs a command line through a shell.
var RunCommand = define(runCommandSpec, Tool{
	Name: "run_command", view: Run, Hints: unrestricted(),
	Description: func(f *Facts) string {
		return "Runs a shell command line; returns its output and exit code. Variables, the current directory and processes end with it. " + f.files() +
			" A denial says what the policy allows."
	},
})

func runCommandSpec(a *arguments) *CallRequest {
	command := a.text("command", "such as: git log --oneline | head -5")
	a.require("command", command, "the command line to run")
	return a.command(v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: command}})
}

// RunProgram runs a program without a shell.
var RunProgram = define(runProgramSpec, Tool{
	Name: "run_program", view: Run, Hints: unrestricted(),
	Description: func(f *Facts) string {
		return "Runs one program with its arguments as they are, without a shell: no quoting, pipes or wildcards. Returns its output and exit code. " +
			f.files()
	},
})

func runProgramSpec(a *arguments) *CallRequest {
	program := a.text("program", "its name, without a path")
	a.require("program", program, "the name of the program to run")
	args := a.texts("args", "")
	if len(args) > maxWords {
		a.fail("args", "has %d arguments, and may have %d", len(args), maxWords)
	}
	return a.command(v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: program, Args: args}})
}

// RunCode runs code in an interpreter.
var RunCode = define(runCodeSpec, Tool{
	Name: "run_code", view: Run, Hints: unrestricted(),
	Description: func(f *Facts) string {
		return "Runs code in an interpreter of its own; returns what it prints, and its exit code. Variables don't last to the next call. " + f.files()
	},
})

func runCodeSpec(a *arguments) *CallRequest {
	code := &v1alpha1.CodeAction{
		Language: a.text("language", "such as python"), Source: a.raw("code", ""),
		NetworkAccess: a.flag("network", "ask for network access"),
	}
	a.require("language", code.Language, "the language of the code, such as python")
	a.require("code", code.Source, "the source to run")
	return a.process(v1alpha1.ToolCallSpec{Code: code}, "")
}

// command reads the other arguments of tools that start a command, which has a default time limit.
func (a *arguments) command(spec v1alpha1.ToolCallSpec) *CallRequest {
	r := a.process(spec, commandTimeout)
	if r.Spec.TimeoutSeconds == nil && !r.Spec.Background {
		r.Spec.TimeoutSeconds = new(defaultTimeoutSeconds)
	}
	return r
}

// process reads the other arguments of tools that start a process.
func (a *arguments) process(spec v1alpha1.ToolCallSpec, timeout string) *CallRequest {
	spec.Stdin = a.raw("stdin", "")
	spec.Background = a.isSet("background", "return at once, for a server or watcher in a session; read_output reads it, cancel_call stops it")
	spec.Collect = a.collect()
	if hosts := a.networkHosts(); len(hosts) > 0 {
		spec.Network = &v1alpha1.CallNetwork{Hosts: hosts}
	}
	r := a.call(spec, timeout)
	if spec.Background && r.Spec.EnvironmentRef != nil {
		a.fail("background", "is not used together with environment: such a call runs in a session, which start_session starts")
	}
	return r
}

// collect reads which files to keep.
func (a *arguments) collect() []string {
	globs := a.texts("collect", "globs of files to keep after its end, for read_output, such as reports/*.png")
	a.schema.Properties["collect"].MaxItems = new(maxCollect)
	if len(globs) > maxCollect {
		a.fail("collect", "has %d globs, and may have %d: use wildcards instead of single names", len(globs), maxCollect)
	}
	return globs
}

// networkHosts reads the hosts that a call may reach. Whether the policy allows them, the operator decides.
func (a *arguments) networkHosts() []string {
	hosts := a.texts("network_hosts", "the only hosts that it may reach, of those allowed: names, *.name, addresses, CIDRs")
	a.schema.Properties["network_hosts"].MaxItems = new(maxNetworkHosts)
	if len(hosts) > maxNetworkHosts {
		a.fail("network_hosts", "has %d hosts, and may have %d: name networks or wildcards instead of single hosts", len(hosts), maxNetworkHosts)
		return nil
	}
	for i, host := range hosts {
		_, err := network.Narrow(&network.Rules{Mode: network.Open}, []string{host})
		if wrong, ok := errors.AsType[*network.Error](err); ok {
			a.fail(fmt.Sprintf("network_hosts[%d]", i), "%s", wrong.Problem)
		}
	}
	return hosts
}

// call reads the arguments that every tool which creates a call has.
func (a *arguments) call(spec v1alpha1.ToolCallSpec, timeout string) *CallRequest {
	if name := a.session(""); name != "" {
		spec.SessionRef = &v1alpha1.SessionReference{Name: name}
	}
	if name := a.environment("if not in a session"); name != "" {
		spec.EnvironmentRef = &v1alpha1.LocalReference{Name: name}
		if spec.SessionRef != nil {
			a.fail("environment", "is not used together with session: a session has the environment that it was started in")
		}
	}
	spec.TimeoutSeconds = a.seconds("timeout_seconds", timeout)
	spec.WorkingDir = a.text("working_dir", "")
	spec.Env = a.variables()
	return &CallRequest{Spec: spec, ID: a.requestID("id of your choice: with the same one, the same call doesn't run twice")}
}
