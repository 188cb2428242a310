package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/test/internal/stream"
)

// answered is an answer that was read to its end.
type answered struct {
	code   int
	header http.Header
	body   []byte
}

// transfer sends a request for a file of a session.
func transfer(t *testing.T, c *stream.Client, method string, session *v1alpha1.ToolSession, path string, body io.Reader, headers ...string) answered {
	t.Helper()
	request := stream.Request{
		Method: method, Namespace: session.Namespace, Path: "toolsessions/" + session.Name + "/proxy/files",
		Query: url.Values{"path": {path}}, Header: http.Header{}, Body: body,
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	return send(t, c, request)
}

func send(t *testing.T, c *stream.Client, request stream.Request) answered {
	t.Helper()
	response, err := c.Do(t.Context(), request)
	must(t, err)
	defer response.Body.Close()
	body := io.Reader(response.Body)
	if size := response.ContentLength; size >= 0 {
		// The stream ends later where the server refused a body that wasn't all sent.
		body = io.LimitReader(body, size)
	}
	all, err := io.ReadAll(body)
	must(t, err)
	return answered{response.StatusCode, response.Header, all}
}

func (a answered) expect(t *testing.T, what string, code int) answered {
	t.Helper()
	if a.code != code && (code != http.StatusOK || a.code/100 != 2) {
		t.Fatalf("%s is answered %d: %s", what, a.code, clip(string(a.body), 1000))
	}
	return a
}

// A file goes up whole, calls of the session find it, and what they make of it comes down.
func TestFilesGoUpAndDown(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	session := sp.startSession(t, "files")
	c := sp.reader(t, "")
	// More than a Write takes.
	written := stream.Written{Seed: sp.namespace, Blocks: 128}
	all, err := io.ReadAll(written.Reader(output.Stdout))
	must(t, err)
	digest := written.SHA256(output.Stdout)

	transfer(t, c, http.MethodGet, session, "new", nil).expect(t, "a file that isn't there", http.StatusNotFound)
	transfer(t, c, http.MethodPut, session, "new", bytes.NewReader(all)).expect(t, "a file up", http.StatusOK)
	expect(t, sp.run(t, inside(session, shell("sha256sum </workspace/new"))), succeeded(digest+"  -\n"))
	whole := transfer(t, c, http.MethodGet, session, "/workspace/new", nil).expect(t, "the file down", http.StatusOK)
	if !bytes.Equal(whole.body, all) || whole.header.Get("ETag") != strconv.Quote(digest) || whole.header.Get("Content-Length") != strconv.Itoa(len(all)) {
		t.Errorf("%d bytes come down, ETag %s, Content-Length %s", len(whole.body), whole.header.Get("ETag"), whole.header.Get("Content-Length"))
	}
	part := transfer(t, c, http.MethodGet, session, "new", nil, "Range", "bytes=65530-65629").expect(t, "a part", http.StatusPartialContent)
	if !bytes.Equal(part.body, all[65530:65630]) || part.header.Get("Content-Range") != fmt.Sprintf("bytes 65530-65629/%d", len(all)) {
		t.Errorf("%d bytes come for a part, Content-Range %s", len(part.body), part.header.Get("Content-Range"))
	}

	// Conditions keep one client from overwriting what another one wrote.
	transfer(t, c, http.MethodPut, session, "new", bytes.NewReader(nil), "If-None-Match", "*").expect(t, "a file that must not be there", http.StatusPreconditionFailed)
	transfer(t, c, http.MethodPut, session, "new", bytes.NewReader(nil), "If-Match", strconv.Quote(sum("other"))).expect(t, "a file that must be another one", http.StatusPreconditionFailed)
	transfer(t, c, http.MethodPut, session, "new", bytes.NewReader([]byte("short")), "If-Match", strconv.Quote(digest)).expect(t, "a file in place of this one", http.StatusOK)
	expect(t, sp.run(t, inside(session, shell("cat new; ls -A"))), succeeded("shortnew\n"))
	transfer(t, c, http.MethodPut, session, "/etc/new", bytes.NewReader(nil)).expect(t, "a file elsewhere", http.StatusForbidden)
	transfer(t, c, http.MethodDelete, session, "new", nil).expect(t, "a deletion", http.StatusOK)
	expect(t, sp.run(t, inside(session, shell("ls -A"))), succeeded(""))
}

// Whoever may read files of sessions may read those of their own, and of sessions that they may use.
func TestFilesOfASessionAreItsCreatorsOnly(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	session := sp.startSession(t, "mine")
	transfer(t, sp.reader(t, ""), http.MethodPut, session, "secret", bytes.NewReader([]byte("secret"))).expect(t, "a file up", http.StatusOK)
	subject, c := sp.person(t, "reader")
	sp.allow(t, "proxies", subject, rbacv1.PolicyRule{
		APIGroups: []string{"subresources.toolcall.dev"}, Resources: []string{"toolsessions/proxy"}, Verbs: []string{"get", "update", "delete"},
	}, rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolsessions"}, Verbs: []string{"get"}})
	await := func(code int, part string) {
		t.Helper()
		sp.awaitTrue(t, fmt.Sprintf("answer %d with %q", code, part), func(context.Context) (bool, error) {
			got := transfer(t, c, http.MethodGet, session, "secret", nil)
			if got.code == http.StatusOK && code != http.StatusOK {
				return false, fmt.Errorf("the file was given away: %q", got.body)
			}
			return got.code == code && bytes.Contains(got.body, []byte(part)), nil
		})
	}
	await(http.StatusForbidden, "did not create the ToolSession")
	transfer(t, c, http.MethodDelete, session, "secret", nil).expect(t, "a deletion", http.StatusForbidden)
	sp.allow(t, "uses", subject, rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolsessions"}, ResourceNames: []string{"mine"}, Verbs: []string{"use"},
	}, rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"tools"}, ResourceNames: []string{"file.read"}, Verbs: []string{"use"}})
	await(http.StatusOK, "secret")
}
