package mcpserver

import (
	"fmt"
	"maps"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The tools as clients see them. The schemas are for clients: arguments.go, spec.go and filespec.go check the arguments, with
// messages that a model can act on.

func runCommandTool(f *facts) *mcp.Tool {
	return &mcp.Tool{
		Name: "run_command", Title: "Run a command line",
		Description: "Runs a command line through a shell and returns its output and exit code. Variables, the current directory and " +
			"processes end with the command. " + f.files() + " The policy decides which programs are allowed: a denial says what is.",
		InputSchema: processInput(map[string]*jsonschema.Schema{
			"command": text("command line, for example: git log --oneline | head -5"), "timeout_seconds": commandTimeout(),
		}, "command"),
		OutputSchema: callOutput(), Annotations: unrestricted(),
	}
}

func runProgramTool(f *facts) *mcp.Tool {
	return &mcp.Tool{
		Name: "run_program", Title: "Run a program",
		Description: "Runs one program with its arguments, exactly as they are, without a shell: no quoting, no pipes, no wildcards. Returns " +
			"its output and exit code. " + f.files(),
		InputSchema: processInput(map[string]*jsonschema.Schema{
			"program": text("name of the program, without a path"),
			"args":    texts("its arguments"), "timeout_seconds": commandTimeout(),
		}, "program"),
		OutputSchema: callOutput(), Annotations: unrestricted(),
	}
}

func runCodeTool(f *facts) *mcp.Tool {
	return &mcp.Tool{
		Name: "run_code", Title: "Run code",
		Description: "Runs a program in an interpreter of its own and returns its output and exit code. Print the values that you need: " +
			"variables don't last to the next call. It can open connections only if the policy gives code a network. " + f.files(),
		InputSchema: processInput(map[string]*jsonschema.Schema{
			"language": text("language of the code, such as python"),
			"code":     text("source code to run"),
			"network":  flag("request network access, which the policy must allow"),
		}, "language", "code"),
		OutputSchema: callOutput(), Annotations: unrestricted(),
	}
}

func execTool(*facts) *mcp.Tool {
	return &mcp.Tool{
		Name: "exec", Title: "Run a command (deprecated)",
		Description: "Deprecated: use run_command, or run_program. Runs a command line (mode shell) or a program with arguments (mode structured).",
		InputSchema: processInput(map[string]*jsonschema.Schema{
			"mode":    word("shell: run command through a shell; structured: run binary with args", modeShell, modeStructured),
			"command": text("command line, in mode shell"),
			"binary":  text("name of the program, in mode structured"),
			"args":    texts("its arguments, in mode structured"),
			"timeout": commandTimeout(), "timeout_seconds": commandTimeout(),
		}, "mode"),
		OutputSchema: callOutput(), Annotations: unrestricted(),
	}
}

func listEnvironmentsTool(*facts) *mcp.Tool {
	return &mcp.Tool{
		Name: "list_environments", Title: "List environments",
		Description: "Lists the environments that calls and sessions can run in: the default one, their images and languages, and the " +
			"directories whose files last after a call. Pass a name as the argument environment of other tools.",
		InputSchema:  input(nil),
		OutputSchema: answerSchema("environments", "more"), Annotations: readOnly(),
	}
}

// commonInput are the arguments of every tool that creates a call. Some tools replace some of them.
func commonInput() map[string]*jsonschema.Schema {
	return map[string]*jsonschema.Schema{
		"session":         text("session to run in, from start_session; its calls share files"),
		"environment":     text("environment to run in, from list_environments; the default one if absent; not together with session"),
		"timeout_seconds": whole("time limit in seconds; the policy sets the default and a maximum", 1),
		"working_dir":     text("directory to start in; that of the session or environment if absent"),
		"env":             variables("environment variables of this call"),
		"request_id": text("your name for this call, such as a UUID: the same id with the same arguments returns the result of the same call instead " +
			"of running it twice, for as long as the call is kept. With it, the call goes on if you stop waiting"),
	}
}

// processInput returns the schema of the arguments of a tool that starts a process.
func processInput(own map[string]*jsonschema.Schema, required ...string) *jsonschema.Schema {
	all := commonInput()
	all["stdin"] = text("standard input; empty if absent")
	all["network_hosts"] = texts("hosts that it may reach, of those that the policy allows: names, *. and a name, addresses or CIDRs, without " +
		"ports; all that the policy allows if absent")
	all["network_hosts"].MaxItems = new(maxNetworkHosts)
	maps.Copy(all, own)
	return input(all, required...)
}

// input returns the schema of arguments.
func input(properties map[string]*jsonschema.Schema, required ...string) *jsonschema.Schema {
	if properties == nil {
		properties = map[string]*jsonschema.Schema{}
	}
	return &jsonschema.Schema{Type: "object", Properties: properties, Required: required, AdditionalProperties: none()}
}

func text(description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Description: description}
}

func texts(description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string"}, Description: description}
}

func variables(description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{Type: "string"}, Description: description}
}

func flag(description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "boolean", Description: description + "; false if absent"}
}

func word(description string, words ...string) *jsonschema.Schema {
	schema := text(description)
	for _, w := range words {
		schema.Enum = append(schema.Enum, w)
	}
	return schema
}

func whole(description string, lowest float64) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "integer", Minimum: &lowest, Description: description}
}

func commandTimeout() *jsonschema.Schema {
	return whole(fmt.Sprintf("time limit in seconds, %d if absent; the policy can set a lower one", defaultTimeoutSeconds), 1)
}

// none is the schema that no value matches.
func none() *jsonschema.Schema { return &jsonschema.Schema{Not: &jsonschema.Schema{}} }

// callOutput returns the schema of the results of a tool that answers with the outcome of a call.
func callOutput() *jsonschema.Schema {
	return answerSchema("exit_code", "call", "phase", "signal", "truncated", "refused", "denied_hosts", "environment", "session", "file")
}

// answerSchema returns the schema of results: the fields that all have, and some others.
func answerSchema(more ...string) *jsonschema.Schema {
	all := resultSchema()
	chosen := map[string]*jsonschema.Schema{}
	for _, name := range append([]string{"output", "reason", "retry_safe"}, more...) {
		chosen[name] = all.Properties[name]
	}
	all.Properties, all.PropertyOrder = chosen, nil
	return all
}

// resultSchema returns the schema of all fields. Only a mistake in the program can make it fail.
func resultSchema() *jsonschema.Schema {
	schema, err := jsonschema.For[Result](nil)
	if err != nil {
		panic(fmt.Sprintf("no schema for results: %v", err))
	}
	return schema
}

// unrestricted returns the hints of a tool that can do anything.
func unrestricted() *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(true)}
}

// readOnly returns the hints of a tool that changes nothing.
func readOnly() *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{ReadOnlyHint: true, DestructiveHint: new(false), IdempotentHint: true, OpenWorldHint: new(false)}
}

// changes returns the hints of a tool that changes something of its own world.
func changes(destructive, idempotent bool) *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{DestructiveHint: &destructive, IdempotentHint: idempotent, OpenWorldHint: new(false)}
}
