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

	policyTimeout = "time limit in seconds; the policy sets the default and a maximum"
)

var commandTimeout = fmt.Sprintf("time limit in seconds, %d if absent; the policy can set a lower one", defaultTimeoutSeconds)

// CallRequest is a call as the arguments of a tool describe it.
type CallRequest struct {
	Spec v1alpha1.ToolCallSpec
	// ID is the client's name for the call, empty if it has none.
	ID string
}

// RunCommand runs a command line through a shell.
var RunCommand = define(runCommandSpec, Tool{
	Name: "run_command", title: "Run a command line", hints: unrestricted(),
	description: func(f *Facts) string {
		return "Runs a command line through a shell and returns its output and exit code. Variables, the current directory and " +
			"processes end with the command. " + f.files() + " The policy decides which programs are allowed: a denial says what is."
	},
})

func runCommandSpec(a *arguments) *CallRequest {
	command := a.text("command", "command line, for example: git log --oneline | head -5")
	a.require("command", command, "the command line to run")
	return a.command(v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: command}})
}

// RunProgram runs a program without a shell.
var RunProgram = define(runProgramSpec, Tool{
	Name: "run_program", title: "Run a program", hints: unrestricted(),
	description: func(f *Facts) string {
		return "Runs one program with its arguments, exactly as they are, without a shell: no quoting, no pipes, no wildcards. Returns " +
			"its output and exit code. " + f.files()
	},
})

func runProgramSpec(a *arguments) *CallRequest {
	program := a.text("program", "name of the program, without a path")
	a.require("program", program, "the name of the program to run")
	return a.command(v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: program, Args: a.texts("args", "its arguments")}})
}

// RunCode runs code in an interpreter.
var RunCode = define(runCodeSpec, Tool{
	Name: "run_code", title: "Run code", hints: unrestricted(),
	description: func(f *Facts) string {
		return "Runs a program in an interpreter of its own and returns its output and exit code. Print the values that you need: " +
			"variables don't last to the next call. It can open connections only if the policy gives code a network. " + f.files()
	},
})

func runCodeSpec(a *arguments) *CallRequest {
	code := &v1alpha1.CodeAction{
		Language: a.text("language", "language of the code, such as python"), Source: a.raw("code", "source code to run"),
		NetworkAccess: a.flag("network", "request network access, which the policy must allow"),
	}
	a.require("language", code.Language, "the language of the code, such as python")
	a.require("code", code.Source, "the source to run")
	return a.process(v1alpha1.ToolCallSpec{Code: code}, policyTimeout)
}

// command reads the other arguments of tools that start a command, which has a default time limit.
func (a *arguments) command(spec v1alpha1.ToolCallSpec) *CallRequest {
	r := a.process(spec, commandTimeout)
	if r.Spec.TimeoutSeconds == nil {
		r.Spec.TimeoutSeconds = new(defaultTimeoutSeconds)
	}
	return r
}

// process reads the other arguments of tools that start a process.
func (a *arguments) process(spec v1alpha1.ToolCallSpec, timeout string) *CallRequest {
	spec.Stdin = a.raw("stdin", "standard input; empty if absent")
	if hosts := a.networkHosts(); len(hosts) > 0 {
		spec.Network = &v1alpha1.CallNetwork{Hosts: hosts}
	}
	return a.call(spec, timeout)
}

// networkHosts reads the hosts that a call may reach. Whether the policy allows them, the operator decides.
func (a *arguments) networkHosts() []string {
	hosts := a.texts("network_hosts", "hosts that it may reach, of those that the policy allows: names, *. and a name, addresses or CIDRs, without "+
		"ports; all that the policy allows if absent")
	a.schema.Properties["network_hosts"].MaxItems = new(maxNetworkHosts)
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

// call reads the arguments that every tool which creates a call has.
func (a *arguments) call(spec v1alpha1.ToolCallSpec, timeout string) *CallRequest {
	if name := a.session("session to run in, from start_session; its calls share files"); name != "" {
		spec.SessionRef = &v1alpha1.SessionReference{Name: name}
	}
	if name := a.environment("environment to run in, from list_environments; the default one if absent; not together with session"); name != "" {
		spec.EnvironmentRef = &v1alpha1.LocalReference{Name: name}
		if spec.SessionRef != nil {
			a.fail("environment", "is not used together with session: a session has the environment that it was started in")
		}
	}
	spec.TimeoutSeconds = a.seconds("timeout_seconds", timeout)
	spec.WorkingDir = a.text("working_dir", "directory to start in; that of the session or environment if absent")
	spec.Env = a.variables("environment variables of this call")
	return &CallRequest{Spec: spec, ID: a.requestID("your name for this call, such as a UUID: the same id with the same arguments returns the " +
		"result of the same call instead of running it twice, for as long as the call is kept. With it, the call goes on if you stop waiting")}
}
