package console

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
)

func TestTheTokensOwnRightsCount(t *testing.T) {
	f := newFixture(t)
	f.newCall("a", "true")
	viewer, nobody := f.user("viewer", reads()...), f.user("nobody")
	for _, c := range []struct {
		name, path string
		changes    []request
		code       int
		message    string
	}{
		{"no token", f.list(), nil, 401, "console: the request has no token"},
		{"a token that the API server refuses", f.list(), []request{withToken("abc.def")}, 401, "Unauthorized"},
		{"a token without rights", f.list(), []request{withToken(nobody)}, 403, "cannot list resource \"toolcalls\""},
		{"a token without rights, one call", f.list() + "/a", []request{withToken(nobody)}, 403, "cannot get resource \"toolcalls\""},
		{"a token without rights, output", f.log("a"), []request{withToken(nobody)}, 403, "toolcalls/log"},
		{"a right of one namespace for all", "/apis/toolcall.dev/v1alpha1/toolcalls", []request{withToken(viewer)}, 403, "at the cluster scope"},
		{"a policy", "/apis/toolcall.dev/v1alpha1/executionpolicies/p", []request{withToken(viewer)}, 403, "executionpolicies"},
		{"no such call", f.list() + "/b", []request{withToken(viewer)}, 404, "not found"},
		{"no such path", f.list() + "/a/status", []request{withToken(viewer)}, 404, "console: the console reads"},
		{"a parameter", f.list() + "?pretty=true", []request{withToken(viewer)}, 400, "console: the console doesn't pass on parameter"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := statusOf(t, send(t, f.console, c.path, c.changes...))
			if int(got.Code) != c.code || !strings.Contains(got.Message, c.message) {
				t.Errorf("%d %q, want %d and %q in it", got.Code, got.Message, c.code, c.message)
			}
		})
	}
	response := send(t, f.console, f.list()+"/a", withToken(viewer))
	call := &v1alpha1.ToolCall{}
	must(t, json.Unmarshal([]byte(read(t, response)), call))
	if response.StatusCode != http.StatusOK || call.Name != "a" || call.Spec.Shell.Command != "true" {
		t.Errorf("%d: %+v", response.StatusCode, call)
	}
}

// A list has what kubectl get prints, without commands, whatever a call's size.
func TestListsAreRows(t *testing.T) {
	f := newFixture(t)
	f.newCall("a", "echo "+strings.Repeat("x", 100_000))
	response := send(t, f.console, f.list(), withToken(f.user("viewer", reads()...)))
	body := read(t, response)
	table := &metav1.Table{}
	must(t, json.Unmarshal([]byte(body), table))
	if table.Kind != "Table" || len(table.Rows) != 1 || len(body) > 20_000 {
		t.Errorf("%d bytes: %.300s", len(body), body)
	}
}

// The calls of a session are selected by the API server.
func TestCallsOfASession(t *testing.T) {
	f := newFixture(t)
	f.newCall("a", "true")
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "b"}}
	call.Spec.Shell, call.Spec.SessionRef = &v1alpha1.ShellAction{Command: "true"}, &v1alpha1.SessionReference{Name: "s"}
	must(t, f.admin.Create(t.Context(), call))
	body := read(t, send(t, f.console, f.list()+"?fieldSelector=spec.sessionRef.name%3Ds", withToken(f.user("viewer", reads()...))))
	table := &metav1.Table{}
	must(t, json.Unmarshal([]byte(body), table))
	if table.Kind != "Table" || len(table.Rows) != 1 || table.Rows[0].Cells[0] != "b" {
		t.Errorf("%.300s", body)
	}
}

// A watch brings events as they come, and ends with the console.
func TestWatchesAreLive(t *testing.T) {
	f := newFixture(t)
	viewer := f.user("viewer", reads()...)
	list := &metav1.Table{}
	must(t, json.Unmarshal([]byte(read(t, send(t, f.console, f.list(), withToken(viewer)))), list))
	for _, selector := range []string{"", "&fieldSelector=metadata.name%3Da"} {
		response := send(t, f.console, f.list()+"?watch=true&resourceVersion="+list.ResourceVersion+selector, withToken(viewer))
		events := bufio.NewReader(response.Body)
		if selector == "" {
			f.newCall("a", "true")
		}
		line, err := events.ReadString('\n')
		if want := map[bool]string{true: `"kind":"Table"`, false: `"kind":"ToolCall"`}[selector == ""]; err != nil || !strings.Contains(line, want) || !strings.Contains(line, "ADDED") {
			t.Errorf("%q: %.300s, %v", selector, line, err)
		}
		if selector != "" {
			f.stop()
			if rest, err := io.ReadAll(events); err != nil || strings.Contains(string(rest), "ERROR") {
				t.Errorf("the end of the watch: %q, %v", rest, err)
			}
		}
	}
}

// Output is bytes to be saved, with the headers that a follower needs, and live.
func TestOutputIsPassedOnAsItComes(t *testing.T) {
	f := newFixture(t)
	call := f.newCall("a", "true")
	viewer := f.user("viewer", reads()...)
	stream := outputs.Add(call, output.Stdout)
	fmt.Fprint(stream, "<script>alert(1)</script>\xff")
	outputs.Add(call, output.Stderr).Finish()

	response := send(t, f.console, f.log("a")+"?follow=true&offset=8", withToken(viewer))
	checkHeaders(t, response, dataPolicy)
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "Content-Disposition": "attachment", "Toolcall-Uid": string(call.UID),
		"Toolcall-Offset": "8", "Toolcall-Bytes": "26", "Toolcall-Complete": "false",
	} {
		if got := response.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	first := make([]byte, 18)
	if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != "alert(1)</script>\xff" {
		t.Errorf("%q, %v", first, err)
	}
	fmt.Fprint(stream, "more")
	if _, err := io.ReadFull(response.Body, first[:4]); err != nil || string(first[:4]) != "more" {
		t.Errorf("%q, %v", first[:4], err)
	}
	stream.Finish()
	if rest := read(t, response); rest != "" {
		t.Errorf("after the end: %q", rest)
	}
}

// What a client may say of itself doesn't reach the API server: it would be refused, or act as another.
func TestHeadersDontPass(t *testing.T) {
	f := newFixture(t)
	viewer := f.user("viewer", reads()...)
	for name, value := range map[string]string{
		"Impersonate-User": "system:admin", "Impersonate-Group": "system:masters", "X-Remote-User": "system:admin", "X-Remote-Group": "system:masters",
		"Accept": "application/vnd.kubernetes.protobuf", "Accept-Encoding": "gzip", "Range": "bytes=0-1", "If-None-Match": "a", "Cookie": "a=b",
		"Audit-Id": "abc", "X-Forwarded-For": "1.2.3.4", "Kubectl-Command": "x", "Content-Type": "text/html", "Warning": "x",
	} {
		response := send(t, f.console, f.list(), withToken(viewer), withHeader(name, value))
		if body := read(t, response); response.StatusCode != http.StatusOK || !strings.HasPrefix(body, `{"kind":"Table"`) {
			t.Errorf("%s: %s: %d %.200s", name, value, response.StatusCode, body)
		}
	}
}

// checkHeaders looks at what every answer must have.
func checkHeaders(t *testing.T, response *http.Response, policy string) {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
	} {
		if got := response.Header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %s is %q, want %q", response.Request.URL, name, got, want)
		}
	}
	for _, name := range []string{"Set-Cookie", "Access-Control-Allow-Origin", "Www-Authenticate", "Audit-Id", "X-Kubernetes-Pf-Flowschema-Uid", "Server"} {
		if got := response.Header.Values(name); len(got) > 0 {
			t.Errorf("%s: there is %s: %q", response.Request.URL, name, got)
		}
	}
}

func TestEveryAnswerHasTheHeaders(t *testing.T) {
	f := newFixture(t)
	f.newCall("a", "true")
	viewer := withToken(f.user("viewer", reads()...))
	for path, policy := range map[string]string{
		"/": pagePolicy, "/main.js": pagePolicy, "/style.css": pagePolicy, "/icon.svg": pagePolicy, "/denials.json": pagePolicy,
		"/nothing": dataPolicy, "/apis/": dataPolicy, f.list(): dataPolicy, f.list() + "/a": dataPolicy, f.list() + "/none": dataPolicy,
		f.list() + "?a=b": dataPolicy, f.log("a"): dataPolicy, f.log("none"): dataPolicy,
	} {
		checkHeaders(t, send(t, f.console, path, viewer), policy)
		checkHeaders(t, send(t, f.console, path), policy)
		checkHeaders(t, send(t, f.console, path, viewer, func(r *http.Request) { r.Method = http.MethodDelete }), dataPolicy)
		checkHeaders(t, send(t, f.console, path, viewer, func(r *http.Request) { r.Host = "other.test" }), dataPolicy)
	}
}

// An API server that is away, or something in its place that answers what it likes.
func TestWhenTheAPIServerIsAway(t *testing.T) {
	f := newFixture(t)
	away := *suite.Server().Config
	away.Host = "https://127.0.0.1:1"
	console, _ := serve(t, &away, testOptions())
	response := send(t, console, f.list(), withToken("a"))
	if s := statusOf(t, response); s.Code != http.StatusBadGateway || strings.Contains(s.Message, "127.0.0.1") || response.Header.Get("Retry-After") == "" {
		t.Errorf("%+v %v", s, response.Header)
	}
}
