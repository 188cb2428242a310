// Package tools says which tools the MCP server has: their names, what they say of themselves, and what their arguments mean.
//
// Input is the arguments of a tool as a model wrote them. Output is what they ask for, as a spec of a call or a session or as plain values,
// or an error that names the arguments and says what would be right. commands.go and filetools.go have the tools that create calls,
// querytools.go the others; arguments.go reads and declares arguments, and facts.go completes descriptions.
//
// Invariants: it reads and writes nothing, so the same arguments always mean the same; the code that reads the arguments of a tool defines
// their schema; a message calls tools and arguments as this server does, never as the API does.
package tools
