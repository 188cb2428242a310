package mcpserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
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

// sumOf has a call know the hash of what it read.
func sumOf(content []byte) func(*v1alpha1.ToolCall) {
	return func(c *v1alpha1.ToolCall) { c.Status.File.SHA256 = fmt.Sprintf("%x", sha256.Sum256(content)) }
}

// readsImage is a call that has read the file of a fileServer.
func readsImage(path string) *v1alpha1.ToolCall {
	call := &v1alpha1.ToolCall{}
	call.Namespace = "n"
	call.Spec.File, call.Spec.SessionRef = &v1alpha1.FileAction{Operation: v1alpha1.FileRead}, &v1alpha1.SessionReference{Name: "s"}
	call.Status.Phase, call.Status.Output = v1alpha1.PhaseSucceeded, "described"
	call.Status.File = &v1alpha1.FileStatus{Path: path, Binary: true}
	return call
}

func TestAnImageIsShownAsOne(t *testing.T) {
	t.Parallel()
	png := append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 60_000)...)
	for name, test := range map[string]struct {
		path    string
		content []byte
		change  func(*v1alpha1.ToolCall)
		kind    string
		later   bool
	}{
		"a PNG":                   {"/w/p.png", png, func(*v1alpha1.ToolCall) {}, "image/png", false},
		"a JPEG in capitals":      {"/w/p.JPG", []byte("\xff\xd8\xff\xe0\x00\x10JFIF"), func(*v1alpha1.ToolCall) {}, "image/jpeg", false},
		"only called like one":    {"/w/p.png", make([]byte, 100), func(*v1alpha1.ToolCall) {}, "", false},
		"too large":               {"/w/p.png", append(png, make([]byte, maxImage)...), func(*v1alpha1.ToolCall) {}, "", false},
		"another kind of file":    {"/w/p.bin", png, func(*v1alpha1.ToolCall) {}, "", false},
		"a file that isn't there": {"/w/other.png", png, func(c *v1alpha1.ToolCall) { c.Status.File.Path = "/w/p.png" }, "", false},
		"without a session":       {"/w/p.png", png, func(c *v1alpha1.ToolCall) { c.Spec.SessionRef = nil }, "", false},
		"a part":                  {"/w/p.png", png, func(c *v1alpha1.ToolCall) { c.Spec.File.Limit = new(int64(3)) }, "", false},
		"as the call read it":     {"/w/p.png", png, sumOf(png), "image/png", true},
		"changed since":           {"/w/p.png", png, sumOf(png[1:]), "", false},
		"later, without a hash":   {"/w/p.png", png, func(*v1alpha1.ToolCall) {}, "", true},
		"text":                    {"/w/p.png", png, func(c *v1alpha1.ToolCall) { c.Status.File.Binary = false }, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := readsImage(test.path)
			test.change(call)
			result := reply.Of(call)
			server := &Server{images: newCounter(maxImageBytes, maxImageBytes, maxImageBytes)}
			server.addImage(t.Context(), nil, fileServer(t, test.path, test.content), call, result, test.later)
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

// Images that clients haven't read yet take up so much memory and no more: beyond that, they are described.
func TestImagesHaveABoundOfMemory(t *testing.T) {
	t.Parallel()
	png := append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 60_000)...)
	server := &Server{images: newCounter(1_000_000, 1_000_000, 1_000_000)}
	who, call := fileServer(t, "/w/p.png", png), readsImage("/w/p.png")
	request, answered := context.WithCancel(t.Context())
	extra := &mcp.RequestExtra{TokenInfo: &auth.TokenInfo{Extra: map[string]any{extraSender: &sender{request: request}}}}
	for _, shown := range []bool{true, false} {
		result := reply.Of(call)
		if server.addImage(t.Context(), extra, who, call, result, false); (result.Image != nil) != shown {
			t.Errorf("shown: %t, want %t, with %d bytes in use", !shown, shown, server.images.Used())
		}
	}
	answered()
	eventually(t, "free memory", func() bool { return server.images.Used() == 0 })
}
