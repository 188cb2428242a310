// Package mcpserver offers tool calls to agents over the Model Context Protocol: over standard input and output
// to one local agent, and over streamable HTTP to many.
//
// Input is a tool's arguments as a model wrote them; output is what came of the ToolCall that was made of them.
// server.go lists the tools and is where to start; arguments.go reads arguments, action.go makes a call's spec of
// them, run.go has it run, answer.go says what came of it. http.go and serve.go are the HTTP side, with who the
// caller is in authenticate.go and how much each may have in sessions.go and quota.go.
//
// Invariants: every request to the Kubernetes API is made with the credentials of the caller whose request it
// serves, never with the server's own, so that admission stamps the caller's name on the call and RBAC is the
// caller's. A session belongs to the user who opened it. A request that is cancelled, or whose connection is lost,
// cancels its call. What goes wrong with a call is a result that a model can read, not a protocol error. Neither
// tokens nor commands nor output are logged.
package mcpserver
