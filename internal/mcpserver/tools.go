package mcpserver

import (
	"fmt"
	"maps"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The tools as clients see them. The schemas are for clients: arguments.go and spec.go check the arguments, with messages
// that a model can act on.

func execTool() *mcp.Tool {
	return &mcp.Tool{
		Name:  "exec",
		Title: "Run a command",
		Description: "Runs one command in a new pod and returns its output and exit code. Mode \"structured\" runs a program " +
			"with arguments, without a shell; mode \"shell\" runs a command line. The environment's policy decides which " +
			"commands are allowed: a denial says what is allowed.",
		InputSchema: object(map[string]*jsonschema.Schema{
			"mode":    {Type: "string", Enum: []any{modeShell, modeStructured}, Description: "shell: run command through a shell; structured: run binary with args"},
			"command": text("command line, in mode shell"),
			"binary":  text("name of the program without a path, in mode structured"),
			"args":    {Type: "array", Items: &jsonschema.Schema{Type: "string"}, Description: "its arguments, in mode structured"},
			"timeout": timeout(fmt.Sprintf("time limit in seconds, %d by default; the policy can set a lower limit", defaultTimeoutSeconds)),
		}, "mode"),
		OutputSchema: resultSchema(),
		Annotations:  unrestricted(),
	}
}

func runCodeTool() *mcp.Tool {
	return &mcp.Tool{
		Name:  "run_code",
		Title: "Run code",
		Description: "Runs code in a new pod and returns its output and exit code. Print the values that you need. " +
			"Without network access the code can't open connections.",
		InputSchema: object(map[string]*jsonschema.Schema{
			"language": text("language of the code, such as python"),
			"code":     text("source code to run"),
			"network":  {Type: "boolean", Description: "request network access, which the policy must allow; false by default"},
			"timeout":  timeout("time limit in seconds, the policy's default if absent; the policy can deny or shorten it"),
		}, "language", "code"),
		OutputSchema: resultSchema(),
		Annotations:  unrestricted(),
	}
}

func listEnvironmentsTool() *mcp.Tool {
	return &mcp.Tool{
		Name:  "list_environments",
		Title: "List environments",
		Description: "Lists the environments that calls can run in, and the default one. Pass a name as the argument environment of " +
			"the other tools.",
		InputSchema:  &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}, AdditionalProperties: none()},
		OutputSchema: schemaFor[environmentList](),
		Annotations:  &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(false)},
	}
}

// object returns the schema of a tool's arguments: its own arguments and the common ones.
func object(own map[string]*jsonschema.Schema, required ...string) *jsonschema.Schema {
	properties := map[string]*jsonschema.Schema{
		"environment": text("name of the environment to run in, from list_environments; the default environment if absent"),
		"working_dir": text("directory to start in; the environment's directory if absent"),
		"env": {
			Type: "object", AdditionalProperties: &jsonschema.Schema{Type: "string"},
			Description: "environment variables of this call, as names and values",
		},
		"stdin": text("standard input; empty if absent"),
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

// none is the schema that no value matches.
func none() *jsonschema.Schema { return &jsonschema.Schema{Not: &jsonschema.Schema{}} }

// unrestricted returns the hints of a tool that can do anything.
func unrestricted() *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(true)}
}

func resultSchema() *jsonschema.Schema { return schemaFor[Result]() }

// schemaFor returns the schema of a type of this package. Only a mistake in the program can make it fail.
func schemaFor[T any]() *jsonschema.Schema {
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		panic(fmt.Sprintf("no schema for %T: %v", *new(T), err))
	}
	return schema
}
