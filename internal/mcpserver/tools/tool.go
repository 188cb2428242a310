package tools

import (
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Tool is what clients see of a tool.
type Tool struct {
	Name string
	// view is the one view besides All that has the tool; empty if all have it.
	view View
	// Description says of the files what is true for the client.
	Description func(*Facts) string
	// Input is the schema of the arguments, which is for clients: the code that reads arguments checks them, with messages that a model
	// can act on. The text of an answer says everything, so there is no schema of it.
	Input *jsonschema.Schema
	Hints *mcp.ToolAnnotations
}

// Typed is a tool whose arguments mean a T.
type Typed[T any] struct {
	Tool
	read func(*arguments) T
}

// define completes a tool with the schema of the arguments that a function reads.
func define[T any](read func(*arguments) T, t Tool) Typed[T] {
	t.Input = declared(read).schema
	return Typed[T]{t, read}
}

// Parse reads the arguments of one use of the tool. Its errors say what to correct.
func (t Typed[T]) Parse(raw json.RawMessage) (T, error) { return parse(raw, t.read) }

// Define returns the tool as clients see it.
func (t Tool) Define(f *Facts) *mcp.Tool {
	return &mcp.Tool{Name: t.Name, Description: t.Description(f), InputSchema: t.Input, Annotations: t.Hints}
}

// ReadOnly reports whether the tool changes nothing.
func (t Tool) ReadOnly() bool { return t.Hints.ReadOnlyHint }

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

// View is a part of the tools, for clients that want fewer.
type View string

// Views. Those that don't have all tools have the ones for environments and sessions, too.
const (
	All   View = "all"
	Files View = "files"
	Run   View = "run"
)

// Views lists the views.
func Views() []View { return []View{All, Files, Run} }

// In reports whether a view has the tool.
func (t Tool) In(v View) bool { return v == All || t.view == "" || t.view == v }
