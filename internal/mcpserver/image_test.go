package mcpserver

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/client-go/rest"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
	outputclient "toolcall.dev/operator/internal/output/client"
)

// fileServer serves one file of the session s, as the API for files does.
func fileServer(t *testing.T, path string, content []byte) *identity.Requester {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/namespaces/n/toolsessions/s/proxy/files") || r.URL.Query().Get("path") != path {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(content)))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	t.Cleanup(server.Close)
	client, err := outputclient.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return &identity.Requester{Output: client}
}

func TestAnImageIsShownAsOne(t *testing.T) {
	t.Parallel()
	png := append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 60_000)...)
	for name, test := range map[string]struct {
		path    string
		content []byte
		change  func(*v1alpha1.ToolCall)
		kind    string
	}{
		"a PNG":                   {"/w/p.png", png, func(*v1alpha1.ToolCall) {}, "image/png"},
		"a JPEG in capitals":      {"/w/p.JPG", []byte("\xff\xd8\xff\xe0\x00\x10JFIF"), func(*v1alpha1.ToolCall) {}, "image/jpeg"},
		"only called like one":    {"/w/p.png", make([]byte, 100), func(*v1alpha1.ToolCall) {}, ""},
		"too large":               {"/w/p.png", append(png, make([]byte, maxImage)...), func(*v1alpha1.ToolCall) {}, ""},
		"another kind of file":    {"/w/p.bin", png, func(*v1alpha1.ToolCall) {}, ""},
		"a file that isn't there": {"/w/other.png", png, func(c *v1alpha1.ToolCall) { c.Status.File.Path = "/w/p.png" }, ""},
		"without a session":       {"/w/p.png", png, func(c *v1alpha1.ToolCall) { c.Spec.SessionRef = nil }, ""},
		"a part":                  {"/w/p.png", png, func(c *v1alpha1.ToolCall) { c.Spec.File.Limit = new(int64(3)) }, ""},
		"in bytes":                {"/w/p.png", png, func(c *v1alpha1.ToolCall) { c.Status.File.Binary = false }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := &v1alpha1.ToolCall{}
			call.Namespace = "n"
			call.Spec.File, call.Spec.SessionRef = &v1alpha1.FileAction{Operation: v1alpha1.FileRead}, &v1alpha1.SessionReference{Name: "s"}
			call.Status.Phase, call.Status.Output = v1alpha1.PhaseSucceeded, "described"
			call.Status.File = &v1alpha1.FileStatus{Path: test.path, Binary: true}
			test.change(call)
			result := reply.Of(call)
			addImage(t.Context(), fileServer(t, test.path, test.content), call, result)
			answer, err := result.Encode(nil, reply.DefaultLimit)
			if err != nil {
				t.Fatal(err)
			}
			if test.kind == "" {
				if len(answer.Content) != 1 || result.Output != "described" {
					t.Errorf("got %q and %d parts", result.Output, len(answer.Content))
				}
				return
			}
			image, ok := answer.Content[len(answer.Content)-1].(*mcp.ImageContent)
			if !ok || image.MIMEType != test.kind || !bytes.Equal(image.Data, test.content) || !strings.Contains(result.Output, test.kind) {
				t.Errorf("got %q, %+v", result.Output, answer.Content)
			}
		})
	}
}
