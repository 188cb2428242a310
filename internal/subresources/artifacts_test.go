package subresources_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/subresources"
	"toolcall.dev/operator/internal/version"
)

func artifact(path, mediaType string, data []byte) v1alpha1.Artifact {
	return v1alpha1.Artifact{Path: path, Bytes: int64(len(data)), SHA256: sum(data), MediaType: mediaType}
}

// withArtifacts is a call that has ended and collected something.
func (s *space) withArtifacts(name string, artifacts ...v1alpha1.Artifact) *v1alpha1.ToolCall {
	s.t.Helper()
	call := s.create(s.admin, name, "")
	status := finishedStatus("printed")
	status.Artifacts = artifacts
	s.setStatus(call, status)
	return call
}

func (s *space) artifactPath(call, path, more string) string {
	return s.pathOf(call, "artifact="+url.QueryEscape(path)+more)
}

func TestAnArtifactIsReadThroughTheAPIServer(t *testing.T) {
	s := newSpace(t)
	data := []byte("0123456789")
	odd := "out/new\nline \"ü\";.html"
	call := s.withArtifacts("call", artifact("out/plot.png", "image/png", data), artifact(odd, "text/html", data), artifact("drawing.svg", "image/svg+xml", data),
		artifact("/tmp/notes", "text/plain", data), artifact("empty", "text/plain", nil))
	for _, a := range call.Status.Artifacts {
		s.streams.AddArtifact(call, a.Path, data[:a.Bytes])
	}
	for path, want := range map[string]struct{ kind, disposition string }{
		"out/plot.png": {"image/png", `attachment; filename=plot.png`},
		odd:            {"application/octet-stream", `attachment; filename*=utf-8''new%0Aline%20%22%C3%BC%22%3B.html`},
		"drawing.svg":  {"application/octet-stream", `attachment; filename=drawing.svg`},
		"/tmp/notes":   {"text/plain; charset=utf-8", `attachment; filename=notes`},
	} {
		r := s.ask(s.Config, http.MethodGet, s.artifactPath("call", path, ""))
		if got := body(t, r); r.StatusCode != http.StatusOK || string(got) != string(data) {
			t.Errorf("%q: %d: %q", path, r.StatusCode, got)
		}
		for name, want := range map[string]string{
			"Content-Type": want.kind, "Content-Disposition": want.disposition, "X-Content-Type-Options": "nosniff", "Content-Length": "10",
			subresources.HeaderSHA256: sum(data), subresources.HeaderComplete: "true", subresources.HeaderBytes: "10", subresources.HeaderVersion: version.String(),
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%q: %s: %q, want %q", path, name, got, want)
			}
		}
	}
	r := s.ask(s.Config, http.MethodGet, s.artifactPath("call", "out/plot.png", ""), "Range", "bytes=2-4")
	if got := string(body(t, r)); r.StatusCode != http.StatusPartialContent || got != "234" || r.Header.Get("Content-Range") != "bytes 2-4/10" {
		t.Errorf("a range: %d %q %q", r.StatusCode, got, r.Header.Get("Content-Range"))
	}
	if r := s.ask(s.Config, http.MethodGet, s.artifactPath("call", "out/plot.png", "&offset=8&limit=1")); string(body(t, r)) != "8" {
		t.Errorf("a part: %d", r.StatusCode)
	}
	if r := s.ask(s.Config, http.MethodHead, s.artifactPath("call", "out/plot.png", "")); r.StatusCode != http.StatusOK || r.ContentLength != 10 {
		t.Errorf("HEAD: %d, %d", r.StatusCode, r.ContentLength)
	}
	if r := s.ask(s.Config, http.MethodGet, s.artifactPath("call", "empty", "")); r.StatusCode != http.StatusOK || len(body(t, r)) != 0 {
		t.Errorf("an empty one: %d", r.StatusCode)
	}
}

func TestAnArtifactThatCannotBeRead(t *testing.T) {
	s := newSpace(t)
	data := []byte("data")
	many := []v1alpha1.Artifact{artifact("gone", "text/plain", data), artifact("other", "text/plain", data), artifact("longer", "text/plain", data)}
	for i := range 30 {
		many = append(many, artifact(fmt.Sprintf("f%02d", i), "text/plain", data))
	}
	call := s.withArtifacts("call", many...)
	s.streams.AddArtifact(call, "other", []byte("DATA"))
	s.streams.AddArtifact(call, "longer", []byte("data and more"))
	// What only the runner has is not the call's.
	s.streams.AddArtifact(call, "secret", data)
	s.withArtifacts("none")
	running := s.create(s.admin, "running", "")
	s.setStatus(running, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning})
	s.streams.AddArtifact(running, "early", data)
	for name, tc := range map[string]struct {
		call, path, more string
		code             int
		says             string
	}{
		"another path":             {"call", "Gone", "", 404, `it has "gone", "other", "longer", "f00"`},
		"a long list":              {"call", "x", "", 404, "and 13 more"},
		"one that isn't listed":    {"call", "secret", "", 404, `no artifact "secret"`},
		"a path that's cut":        {"call", strings.Repeat("x", 4000), "", 404, "no artifact"},
		"of a call without":        {"none", "x", "", 404, "it has none"},
		"of a call that runs":      {"running", "early", "", 404, "has not ended"},
		"one that isn't kept":      {"call", "gone", "", 410, `artifact "gone" is not kept`},
		"with another content":     {"call", "other", "", 410, "not kept"},
		"with more than is said":   {"call", "longer", "", 410, "not kept"},
		"none":                     {"call", "", "", 400, "is empty"},
		"and a stream":             {"call", "gone", "&stream=stdout", 400, "excludes"},
		"that is followed":         {"call", "gone", "&follow=true", 400, "excludes"},
		"of another call by UID":   {"call", "gone", "&uid=x", 409, "another call"},
		"of a call that is no one": {"missing", "x", "", 404, "not found"},
	} {
		r := s.ask(s.Config, http.MethodGet, s.artifactPath(tc.call, tc.path, tc.more))
		if got := statusOf(t, r); r.StatusCode != tc.code || !strings.Contains(got.Message, tc.says) || len(got.Message) > 1500 {
			t.Errorf("%s: %d %s", name, r.StatusCode, got.Message)
		}
		if r.Header.Get("Content-Disposition") != "" {
			t.Errorf("%s: the error is a file", name)
		}
	}
}

func TestReadingAnArtifactNeedsTheRightsOfReadingOutput(t *testing.T) {
	s := newSpace(t)
	call := s.withArtifacts("call", artifact("a", "text/plain", []byte("data")))
	s.streams.AddArtifact(call, "a", []byte("data"))
	if r := s.ask(s.as("stranger"), http.MethodGet, s.artifactPath("call", "a", "")); r.StatusCode != http.StatusForbidden {
		t.Errorf("a stranger: %d", r.StatusCode)
	}
	s.grant("half", "get", "subresources.toolcall.dev/toolcalls/log")
	// Which files there are is said to those alone who may read the call.
	if r := s.ask(s.as("half"), http.MethodGet, s.artifactPath("call", "b", "")); r.StatusCode != http.StatusForbidden {
		t.Errorf("without the right to read the call: %d", r.StatusCode)
	}
	s.bind("viewer", "toolcall-viewer")
	eventually(t, func() error {
		if r := s.ask(s.as("viewer"), http.MethodGet, s.artifactPath("call", "a", "")); r.StatusCode != http.StatusOK {
			return fmt.Errorf("%d", r.StatusCode)
		}
		return nil
	})
}
