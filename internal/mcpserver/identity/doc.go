// Package identity says on whose behalf the MCP server acts, and gives it clients with that user's credentials.
//
// Input is a connection to the API server: that of a kubeconfig, or one with the token of a request. Output is a Requester, which sends
// everything with those credentials and never with others. Tokens remembers whose the tokens of requests are; it keeps hashes of them, in
// bounded memory, and no tenant or address evicts what belongs to another.
package identity
