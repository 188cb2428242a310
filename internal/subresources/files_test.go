package subresources_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

func tag(content string) string { return `"` + sum([]byte(content)) + `"` }

func TestAFileGoesUpAndDownThroughTheAPIServer(t *testing.T) {
	p := newPod(t)
	if r := p.put("sub/file", "hello\nworld\n"); r.StatusCode != http.StatusCreated || r.Header.Get("ETag") != tag("hello\nworld\n") {
		t.Fatalf("%d, %v: %s", r.StatusCode, r.Header, body(t, r))
	}
	if r := p.put("sub/file", "0123456789"); r.StatusCode != http.StatusOK || r.Header.Get("ETag") != tag("0123456789") {
		t.Errorf("again: %d, %v", r.StatusCode, r.Header)
	}
	if got := p.onDisk("sub/file"); got != "0123456789" {
		t.Errorf("on the disk is %q", got)
	}
	for name, tc := range map[string]struct {
		headers       []string
		code          int
		body, content string
	}{
		"all":                  {nil, 200, "0123456789", ""},
		"range":                {[]string{"Range", "bytes=2-4"}, 206, "234", "bytes 2-4/10"},
		"open range":           {[]string{"Range", "bytes=8-"}, 206, "89", "bytes 8-9/10"},
		"last bytes":           {[]string{"Range", "bytes=-3"}, 206, "789", "bytes 7-9/10"},
		"range if it is this":  {[]string{"Range", "bytes=2-4", "If-Range", tag("0123456789")}, 206, "234", "bytes 2-4/10"},
		"range if it is other": {[]string{"Range", "bytes=2-4", "If-Range", tag("other")}, 200, "0123456789", ""},
		"if it is this":        {[]string{"If-Match", tag("other") + ", " + tag("0123456789")}, 200, "0123456789", ""},
		"if it isn't other":    {[]string{"If-None-Match", tag("other")}, 200, "0123456789", ""},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			r := p.send(p.owner, method, p.fileURL("sub/file", ""), nil, tc.headers...)
			want := tc.body
			if method == http.MethodHead {
				want = ""
			}
			if got := string(body(t, r)); r.StatusCode != tc.code || got != want || r.ContentLength != int64(len(tc.body)) || r.Header.Get("Content-Range") != tc.content || r.Header.Get("ETag") != tag("0123456789") {
				t.Errorf("%s %s: %d %q, %v", method, name, r.StatusCode, got, r.Header)
			}
		}
	}
	for name, tc := range map[string]struct {
		headers []string
		code    int
	}{
		"not if it is this": {[]string{"If-None-Match", "W/" + tag("0123456789")}, http.StatusNotModified},
		"if it is other":    {[]string{"If-Match", tag("other")}, http.StatusPreconditionFailed},
		"behind the end":    {[]string{"Range", "bytes=10-"}, http.StatusRequestedRangeNotSatisfiable},
		"two ranges":        {[]string{"Range", "bytes=0-1,3-4"}, http.StatusBadRequest},
	} {
		if r := p.send(p.owner, http.MethodGet, p.fileURL("sub/file", ""), nil, tc.headers...); r.StatusCode != tc.code {
			t.Errorf("%s: %d, want %d", name, r.StatusCode, tc.code)
		}
	}
	if r := p.send(p.owner, http.MethodDelete, p.fileURL("sub/file", ""), nil, "If-Match", tag("other")); r.StatusCode != http.StatusPreconditionFailed {
		t.Errorf("delete another: %d", r.StatusCode)
	}
	if r := p.send(p.owner, http.MethodDelete, p.fileURL("sub/file", ""), nil, "If-Match", tag("0123456789")); r.StatusCode != http.StatusNoContent {
		t.Errorf("delete: %d: %s", r.StatusCode, body(t, r))
	}
	for _, code := range []int{http.StatusNoContent, http.StatusPreconditionFailed} {
		if code == http.StatusNoContent {
			p.put("other", "x")
		}
		if r := p.send(p.owner, http.MethodDelete, p.fileURL("other", ""), nil, "If-Match", "*"); r.StatusCode != code {
			t.Errorf("delete any: %d, want %d: %s", r.StatusCode, code, body(t, r))
		}
	}
	if r := p.send(p.owner, http.MethodGet, p.fileURL("sub/file", ""), nil); r.StatusCode != http.StatusNotFound {
		t.Errorf("after it was deleted: %d", r.StatusCode)
	}
}

func TestConditionsOfAWrite(t *testing.T) {
	p := newPod(t)
	for i, tc := range []struct {
		path, content string
		headers       []string
		code          int
		now           string
	}{
		{"file", "one", []string{"If-None-Match", "*"}, http.StatusCreated, "one"},
		{"file", "two", []string{"If-None-Match", "*"}, http.StatusPreconditionFailed, "one"},
		{"file", "two", []string{"If-Match", tag("other")}, http.StatusPreconditionFailed, "one"},
		{"file", "two", []string{"If-Match", tag("one")}, http.StatusOK, "two"},
		{"absent", "two", []string{"If-Match", tag("one")}, http.StatusPreconditionFailed, "two"},
		{"absent", "two", []string{"If-Match", "*"}, http.StatusPreconditionFailed, "two"},
		{"sub/absent", "two", []string{"If-Match", "*"}, http.StatusPreconditionFailed, "two"},
		{"file", "three", []string{"If-Match", "*, " + tag("two")}, http.StatusBadRequest, "two"},
		{"file", "two", []string{"If-Match", "*"}, http.StatusOK, "two"},
		{"file", "three", []string{"If-Match", `"` + strings.Repeat("x", 64) + `"`}, http.StatusBadRequest, "two"},
		{"file", "three", []string{"If-None-Match", tag("one")}, http.StatusBadRequest, "two"},
		{"file", "three", []string{"Content-Range", "bytes 0-4/10"}, http.StatusBadRequest, "two"},
		{"file", "three", []string{"Content-Encoding", "gzip"}, http.StatusBadRequest, "two"},
	} {
		if r := p.put(tc.path, tc.content, tc.headers...); r.StatusCode != tc.code {
			t.Errorf("%d: %d, want %d: %s", i, r.StatusCode, tc.code, body(t, r))
		}
		if got := p.onDisk("file"); got != tc.now {
			t.Errorf("%d: it is %q", i, got)
		}
	}
	if got := p.names(); got != "file" {
		t.Errorf("there are %s", got)
	}
}

func TestFilesAreHeldToThePolicy(t *testing.T) {
	p := newPod(t, func(spec *v1alpha1.ExecutionPolicySpec) {
		spec.Files.MaxReadBytes, spec.Files.MaxWriteBytes = ptr.To[int64](10), ptr.To[int64](1000)
	})
	outside := t.TempDir()
	for path, content := range map[string]string{outside + "/secret": "secret", p.dir + "/a.key": "key", p.dir + "/large": strings.Repeat("x", 1000)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, p.dir+"/link"); err != nil {
		t.Fatal(err)
	}
	for path, code := range map[string]int{
		outside + "/secret": http.StatusForbidden, "link/secret": http.StatusForbidden, "../x": http.StatusForbidden, "a.key": http.StatusForbidden,
		"/proc/self/environ": http.StatusForbidden, "": http.StatusBadRequest, "a\x00b": http.StatusBadRequest, strings.Repeat("x/", 3000): http.StatusBadRequest,
		".": http.StatusConflict,
	} {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
			r := p.send(p.owner, method, p.fileURL(path, ""), strings.NewReader("x"))
			if status := statusOf(t, r); r.StatusCode != code && (path != "." || method != http.MethodDelete) {
				t.Errorf("%s %.50q: %d, want %d: %s", method, path, r.StatusCode, code, status.Message)
			}
		}
	}
	if r := p.send(p.owner, http.MethodGet, p.fileURL("large", ""), nil); r.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("more than may be read: %d", r.StatusCode)
	}
	if r := p.send(p.owner, http.MethodGet, p.fileURL("large", ""), nil, "Range", "bytes=5-14"); r.StatusCode != http.StatusPartialContent || len(body(t, r)) != 10 {
		t.Errorf("as much as may be read: %d", r.StatusCode)
	}
	for name, content := range map[string]io.Reader{"announced": strings.NewReader(strings.Repeat("x", 1001)), "unannounced": io.MultiReader(strings.NewReader(strings.Repeat("x", 1001)))} {
		if r := p.send(p.owner, http.MethodPut, p.fileURL("new", ""), content); r.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("more than may be written, %s: %d", name, r.StatusCode)
		}
	}
	eventually(t, func() error {
		if got := p.names(); got != "a.key large link" {
			return errors.New(got)
		}
		return nil
	})
}

func TestFilesAreTheSessionsOwners(t *testing.T) {
	p := newPod(t, func(spec *v1alpha1.ExecutionPolicySpec) { spec.Access = v1alpha1.AccessRBAC })
	if err := os.WriteFile(p.dir+"/file", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect := func(user *rest.Config, method string, want int) string {
		t.Helper()
		said := ""
		eventually(t, func() error {
			r := p.send(user, method, p.fileURL("file", ""), strings.NewReader("x"))
			raw := body(t, r)
			if said = string(raw); r.StatusCode != want {
				return fmt.Errorf("%s: %d, want %d: %s", method, r.StatusCode, want, raw)
			}
			return nil
		})
		return said
	}
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
		if said := expect(p.owner, method, http.StatusForbidden); !strings.Contains(said, "file.") {
			t.Errorf("%s: %s", method, said)
		}
	}
	p.grant("owner", "use", "toolcall.dev/tools", "file.read")
	expect(p.owner, http.MethodGet, http.StatusOK)
	expect(p.owner, http.MethodPut, http.StatusForbidden)
	p.grant("owner", "use", "toolcall.dev/tools", "file.write")
	expect(p.owner, http.MethodPut, http.StatusOK)
	// Others need the right to the session, too.
	p.bind("other", "toolcall-user")
	p.grant("other", "use", "toolcall.dev/tools", "file.read", "file.write")
	if said := expect(p.as("other"), http.MethodGet, http.StatusForbidden); !strings.Contains(said, "SessionNotAllowed") {
		t.Error(said)
	}
	p.grant("other", "use", "toolcall.dev/toolsessions", "session")
	expect(p.as("other"), http.MethodGet, http.StatusOK)
	// The verbs of the group are those of the methods.
	p.grant("reader", "use", "toolcall.dev/toolsessions", "session")
	p.grant("reader", "use", "toolcall.dev/tools", "file.read", "file.write")
	p.grant("reader", "get", "subresources.toolcall.dev/toolsessions/proxy")
	expect(p.as("reader"), http.MethodGet, http.StatusOK)
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		if said := expect(p.as("reader"), method, http.StatusForbidden); !strings.Contains(said, "toolsessions/proxy") {
			t.Error(said)
		}
	}
	expect(p.owner, http.MethodDelete, http.StatusNoContent)
}

func TestASessionThatHasNoRunnerNow(t *testing.T) {
	p := newPod(t)
	ready := p.session.Status
	expect := func(what string, want int) *metav1.Status {
		t.Helper()
		status := statusOf(t, p.send(p.owner, http.MethodGet, p.fileURL("file", ""), nil))
		if int(status.Code) != want {
			t.Errorf("%s: %+v", what, status)
		}
		return status
	}
	for _, phase := range []v1alpha1.SessionPhase{v1alpha1.SessionSuspended, v1alpha1.SessionEnded, v1alpha1.SessionPending} {
		status := ready
		status.Phase = phase
		if phase == v1alpha1.SessionPending {
			status.Runner = nil
		}
		// An ended one stays ended.
		if phase == v1alpha1.SessionEnded {
			continue
		}
		p.setSession(status)
		expect(string(phase), http.StatusConflict)
	}
	other := *ready.Runner
	other.KeyHash = strings.Repeat("a", 64)
	p.setSession(ready)
	expect("a file that isn't there", http.StatusNotFound)
	next := ready
	next.Incarnation = 2
	p.setSession(next)
	if s := expect("another incarnation", http.StatusServiceUnavailable); s.Details.RetryAfterSeconds < 1 {
		t.Errorf("%+v", s)
	}
	if err := client.IgnoreNotFound(p.admin.Delete(t.Context(), p.session)); err != nil {
		t.Fatal(err)
	}
	expect("a session that is gone", http.StatusNotFound)
}

func TestAnUploadWhoseClientGoesLeavesNothing(t *testing.T) {
	p := newPod(t)
	for name, conn := range map[string]func(cancel func()){"the client goes": func(cancel func()) { cancel() }, "the runner goes": func(func()) { p.cut() }} {
		ctx, cancel := context.WithCancel(t.Context())
		reader, writer := io.Pipe()
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, strings.TrimSuffix(p.owner.Host, "/")+p.fileURL("new/file", ""), reader)
		if err != nil {
			t.Fatal(err)
		}
		c, err := rest.HTTPClientFor(p.owner)
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan int, 1)
		go func() {
			response, err := c.Do(r)
			if err != nil {
				answered <- 0
				return
			}
			response.Body.Close()
			answered <- response.StatusCode
		}()
		if _, err := writer.Write(make([]byte, 300<<10)); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			if p.names() != "new" {
				return errors.New("it hasn't begun")
			}
			return nil
		})
		conn(cancel)
		_, _ = writer.Write(make([]byte, 300<<10))
		writer.Close()
		if code := <-answered; code == http.StatusOK || code == http.StatusCreated {
			t.Errorf("%s: %d", name, code)
		}
		eventually(t, func() error {
			if got := p.names(); got != "" {
				return errors.New(name + ": left is " + got)
			}
			return nil
		})
		cancel()
	}
}

func TestADownloadThatBreaksOffIsNotTakenForWhole(t *testing.T) {
	p := newPod(t)
	if err := os.WriteFile(p.dir+"/large", bytes.Repeat([]byte("0123456789abcdef"), 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	r := p.send(p.owner, http.MethodGet, p.fileURL("large", ""), nil)
	if _, err := io.ReadFull(r.Body, make([]byte, 1<<10)); err != nil {
		t.Fatal(err)
	}
	p.cut()
	if n, err := io.Copy(io.Discard, r.Body); err == nil {
		t.Errorf("%d bytes came, and no error", n)
	}
}

func TestAHundredMiBThroughTheAPIServer(t *testing.T) {
	p := newPod(t)
	const size = 100 << 20
	hash := sha256.New()
	content := io.TeeReader(io.LimitReader(&pattern{}, size), hash)
	if r := p.send(p.owner, http.MethodPut, p.fileURL("large", ""), content); r.StatusCode != http.StatusCreated || r.Header.Get("ETag") != `"`+hex.EncodeToString(hash.Sum(nil))+`"` {
		t.Fatalf("%d, %v", r.StatusCode, r.Header)
	}
	r := p.send(p.owner, http.MethodGet, p.fileURL("large", ""), nil)
	again := sha256.New()
	if n, err := io.Copy(again, r.Body); err != nil || n != size || !bytes.Equal(again.Sum(nil), hash.Sum(nil)) {
		t.Errorf("%d bytes came, %v", n, err)
	}
}

// pattern is an endless text.
type pattern struct{ n byte }

func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		p.n = p.n*31 + 7
		b[i] = p.n
	}
	return len(b), nil
}

func TestAReplicaPassesFilesOn(t *testing.T) {
	p := newPod(t)
	leader := p.start(nil, nil)
	follower := p.start(nil, p.follower(leader.port, make(chan struct{})))
	p.lease("127.0.0.1")
	transport := follower.transport(p.front)
	send := func(method, more, content string, code int) (got string, err error) {
		response, err := transport.RoundTrip(p.asOwner(follower, method, p.fileURL("file", more), strings.NewReader(content)))
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		raw, err := io.ReadAll(response.Body)
		if response.StatusCode != code {
			err = fmt.Errorf("%s%s: %d: %s", method, more, response.StatusCode, raw)
		}
		return string(raw), err
	}
	content := strings.Repeat("content", 100_000)
	eventually(t, func() error {
		_, err := send(http.MethodPut, "", content, http.StatusCreated)
		return err
	})
	if p.onDisk("file") != content {
		t.Error("it is another file")
	}
	if got, err := send(http.MethodGet, "", "", http.StatusOK); err != nil || got != content {
		t.Errorf("down come %d bytes, %v", len(got), err)
	}
	if _, err := send(http.MethodDelete, "", "", http.StatusNoContent); err != nil {
		t.Error(err)
	}
	archive := string(archiveOf(t, regular("a"), regular("b")))
	if _, err := send(http.MethodPut, "&archive=tar", archive, http.StatusOK); err != nil || p.onDisk("file/b") != "b" {
		t.Errorf("the archive: %v", err)
	}
	if got, err := send(http.MethodGet, "&archive=tar", "", http.StatusOK); err != nil || !strings.Contains(got, "b\x00") {
		t.Errorf("the archive that comes down has %d bytes, %v", len(got), err)
	}
}
