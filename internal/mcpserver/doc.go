// Package mcpserver offers tool calls to agents over the Model Context Protocol: over standard input and output to one
// local agent, and over streamable HTTP to many agents.
//
// Input is the arguments of a tool as a model wrote them. Output is the outcome of the ToolCall that the server created
// from them, of a ToolSession, or a part of what a call wrote. Start reading at toolset.go, which lists the tools. The package tools has
// their texts and reads their arguments, run.go runs a call, environments.go, sessiontools.go, calltools.go and readoutput.go carry out the
// other tools, the package reply makes the answers, and failure.go those of failures. requestid.go names calls by the ids of clients,
// conversation.go bounds the clients' conversations and ends sessions with them, facts.go finds out what the descriptions of the tools say.
// http.go and serve.go implement HTTP, authenticate.go finds out who sent a request, and metadata.go tells clients who issues tokens. The
// package identity has the clients of requesters, and tasks what lets clients ask for a long call again.
//
// Invariants: the server sends every request to the Kubernetes API in the name of the requester, except reviews of tokens, so
// admission records the requester and RBAC applies to the requester; a session of the protocol belongs to the user who opened it; a
// cancelled request or a lost connection cancels its call, unless the client can find the call again by its request_id or task; a request_id
// never runs two calls at the same time, and never gives the result of another user's call; the server keeps nothing that another replica
// would need; no user, tenant or address can use up a resource that others need; the outcome of a call is a result that a model can read,
// not a protocol error; the text of an answer has all that a model needs; the server logs neither tokens nor commands nor output.
package mcpserver
