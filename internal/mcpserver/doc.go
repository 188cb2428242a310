// Package mcpserver offers tool calls to agents over the Model Context Protocol: over standard input and output to one
// local agent, and over streamable HTTP to many agents.
//
// Input is the arguments of a tool as a model wrote them. Output is the outcome of the ToolCall that the server created
// from them. Start reading at server.go, which lists the tools: arguments.go reads arguments, spec.go builds the spec of
// a call, run.go runs the call, and result.go describes its outcome. http.go and serve.go implement HTTP,
// authenticate.go finds out who sent a request, and limits.go, sessions.go, reviewqueue.go and connections.go bound what
// one user, tenant or address can use.
//
// Invariants: every request to the Kubernetes API uses the credentials of the requester, never the server's own, so
// admission records the requester and RBAC applies to the requester; a session belongs to the user who opened it; a
// cancelled request or a lost connection cancels its call; no user, tenant or address can use up a resource that others
// need; the outcome of a call is a result that a model can read, not a protocol error; the server logs neither tokens
// nor commands nor output.
package mcpserver
