package mcpserver

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// A client without a token finds out from the answer who issues tokens for what it has asked.
func TestTheMetadataOfTheResource(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(e *Endpoint) {
		e.ResourceURL, e.AuthorizationServers = "https://mcp.example.com", []string{"https://login.example.com"}
	})
	for path, resource := range map[string]string{"/mcp": "https://mcp.example.com/mcp", "/mcp/agents": "https://mcp.example.com/mcp/agents"} {
		_, header, _ := s.request(http.MethodPost, path, initialize)
		want := `Bearer realm="toolcall", resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource` + path + `"`
		if got := header.Get("Www-Authenticate"); got != want {
			t.Errorf("challenge of %s: %s", path, got)
		}
		status, header, body := s.request(http.MethodGet, wellKnown+path, "", "Origin", "https://anybody.example.com")
		got := oauthex.ProtectedResourceMetadata{}
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK || header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %d %s", path, status, body)
		}
		if diff := cmp.Diff(oauthex.ProtectedResourceMetadata{
			Resource: resource, AuthorizationServers: []string{"https://login.example.com"}, BearerMethodsSupported: []string{"header"}, ResourceName: "toolcall MCP server",
		}, got); diff != "" {
			t.Error(diff)
		}
	}
	for _, path := range []string{"", "/", "/mcp/", "/mcp/UPPER", "/mcp/a%22b", "/mcp/a%0ab", "/other", "/mcp/" + strings.Repeat("a", 64)} {
		if status, _, body := s.request(http.MethodGet, wellKnown+path, ""); status != http.StatusNotFound {
			t.Errorf("%q: %d %s", path, status, body)
		}
	}
	if _, header, _ := s.request(http.MethodPost, "/mcp/a%22b", initialize); header.Get("Www-Authenticate") != `Bearer realm="toolcall"` {
		t.Errorf("challenge of a path that is none: %s", header.Get("Www-Authenticate"))
	}
}
