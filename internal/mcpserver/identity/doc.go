// Package identity says on whose behalf the MCP server acts, and gives it clients that act as that user.
//
// Input is a connection to the API server: that of a kubeconfig, or the server's own with the token of a request. Output is a Requester, whose
// requests are all its user's. An Impersonator has the API server say whose a token is and whether it is meant for this server, and acts for
// the user by constrained impersonation. A TokenPasser has clients send the token itself. Accepted remembers whose tokens are, by hashes of them,
// in bounded memory: no tenant evicts what belongs to another.
package identity
