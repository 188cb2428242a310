package mcpserver

import (
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"toolcall.dev/operator/internal/mcpserver/identity"
)

// wellKnown is where RFC 9728 has the metadata of a protected resource; the path of the resource follows it.
const wellKnown = "/.well-known/oauth-protected-resource"

// isResource reports whether a path can be one of the protocol's.
func isResource(path string) bool {
	names := strings.Split(strings.TrimPrefix(path, "/"), "/")
	return names[0] == "mcp" && !slices.ContainsFunc(names, func(name string) bool { return name == "" || identity.CheckNamespace(name) != nil })
}

// serveMetadata tells anybody who issues tokens for the resource of a path.
func (e *endpoint) serveMetadata(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, wellKnown)
	if !isResource(path) {
		http.NotFound(w, r)
		return
	}
	auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: e.ResourceURL + path, AuthorizationServers: e.AuthorizationServers,
		BearerMethodsSupported: []string{"header"}, ResourceName: "toolcall MCP server",
	}).ServeHTTP(w, r)
}

// challenge is the header WWW-Authenticate of RFC 6750, with the address of the metadata. A request without a token has no error in it.
func (e *endpoint) challenge(path string, invalid bool) string {
	challenge := `Bearer realm="toolcall"`
	if invalid {
		challenge += `, error="invalid_token"`
	}
	if e.ResourceURL != "" && isResource(path) {
		challenge += `, resource_metadata="` + e.ResourceURL + wellKnown + path + `"`
	}
	return challenge
}
