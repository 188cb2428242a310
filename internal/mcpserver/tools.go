package mcpserver

import (
	"fmt"
	"maps"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The tools as clients see them. Their arguments are checked in arguments.go and action.go, with messages that a
// model can act on; the schemas are for clients.

func execTool() *mcp.Tool {
	return &mcp.Tool{
		Name:  "exec",
		Title: "Run a command",
		Description: "Runs one command in a fresh pod and returns its output and exit code. Mode \"structured\" runs a program " +
			"with arguments, without a shell; mode \"shell\" runs a command line. Which commands are allowed is up to the " +
			"environment's policy: a denial says what would be accepted.",
		InputSchema: object(map[string]*jsonschema.Schema{
			"mode":    {Type: "string", Enum: []any{modeShell, modeStructured}, Description: "shell: run command through a shell; structured: run binary with args"},
			"command": text("command line, in mode shell"),
			"binary":  text("bare name of the program, in mode structured"),
			"args":    {Type: "array", Items: &jsonschema.Schema{Type: "string"}, Description: "its arguments, in mode structured"},
			"timeout": timeout(fmt.Sprintf("limit of the run time in seconds, %d by default; the policy may set a lower one", defaultTimeoutSeconds)),
		}, "mode"),
		OutputSchema: resultSchema(),
		Annotations:  runs(),
	}
}

func runCodeTool() *mcp.Tool {
	return &mcp.Tool{
		Name:  "run_code",
		Title: "Run code",
		Description: "Runs a snippet of code in a fresh pod and returns its output and exit code. Print what you want to see. " +
			"Without network the snippet can't open a connection.",
		InputSchema: object(map[string]*jsonschema.Schema{
			"language": text("language of the code, such as python"),
			"code":     text("source to run"),
			"network":  {Type: "boolean", Description: "ask for network access, which the policy must allow; false by default"},
			"timeout":  timeout("limit of the run time in seconds; the policy's default when absent, and the policy may refuse or shorten it"),
		}, "language", "code"),
		OutputSchema: resultSchema(),
		Annotations:  runs(),
	}
}

func listEnvironmentsTool() *mcp.Tool {
	return &mcp.Tool{
		Name:  "list_environments",
		Title: "List environments",
		Description: "Lists the environments that calls can run in, and which one is taken when a call names none. " +
			"Their names go into the argument environment of the other tools.",
		InputSchema:  &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}, AdditionalProperties: none()},
		OutputSchema: schemaFor[environmentList](),
		Annotations:  &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(false)},
	}
}

// object is the schema of a tool's arguments: its own, and those that both tools have.
func object(own map[string]*jsonschema.Schema, required ...string) *jsonschema.Schema {
	properties := map[string]*jsonschema.Schema{
		"environment": text("name of the environment to run in, as list_environments gives it; the default one when absent"),
		"working_dir": text("directory to start in; the environment's when absent"),
		"env": {
			Type: "object", AdditionalProperties: &jsonschema.Schema{Type: "string"},
			Description: "variables of this call, names and values",
		},
		"stdin": text("standard input; empty when absent"),
	}
	maps.Copy(properties, own)
	return &jsonschema.Schema{Type: "object", Properties: properties, Required: required, AdditionalProperties: none()}
}

func text(description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Description: description}
}

func timeout(description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "integer", Minimum: new(1.0), Description: description}
}

// none is the schema that nothing fits.
func none() *jsonschema.Schema { return &jsonschema.Schema{Not: &jsonschema.Schema{}} }

// runs are the hints of a tool that may do anything.
func runs() *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(true)}
}

func resultSchema() *jsonschema.Schema { return schemaFor[Result]() }

// schemaFor is the schema of a type of this package; that it has one is a matter of the program, not of its input.
func schemaFor[T any]() *jsonschema.Schema {
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		panic(fmt.Sprintf("no schema for %T: %v", *new(T), err))
	}
	return schema
}
