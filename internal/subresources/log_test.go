package subresources_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/subresources"
)

// pathOf is where a call's output is.
func (s *space) pathOf(call, query string) string {
	path := fmt.Sprintf("/apis/%s/namespaces/%s/toolcalls/%s/log", subresources.GroupVersion, s.namespace, call)
	if query != "" {
		path += "?" + query
	}
	return path
}

// ask sends a request through the API server. The caller closes the body.
func (s *space) ask(config *rest.Config, method, path string, headers ...string) *http.Response {
	s.t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, strings.TrimSuffix(config.Host, "/")+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { response.Body.Close() })
	return response
}

// body reads all of an answer.
func body(t *testing.T, r *http.Response) []byte {
	t.Helper()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("read the answer after %d bytes: %v", len(raw), err)
	}
	return raw
}

// statusOf is the error that an answer is.
func statusOf(t *testing.T, r *http.Response) *metav1.Status {
	t.Helper()
	status := &metav1.Status{}
	raw := body(t, r)
	if err := json.Unmarshal(raw, status); err != nil || status.Kind != "Status" || int(status.Code) != r.StatusCode {
		t.Fatalf("answer %d isn't a Status: %v: %q", r.StatusCode, err, raw)
	}
	return status
}

func TestOutputIsReadThroughTheAPIServer(t *testing.T) {
	s := newSpace(t)
	call := s.finished("call", "hello\nworld\n")
	if got := s.run("get", "--raw", s.pathOf("call", "")); got != "hello\nworld" {
		t.Errorf("kubectl get --raw: %q", got)
	}
	// Kubernetes' clients write the time that they have for a request into its query.
	if got := s.run("get", "--raw", s.pathOf("call", "limit=5"), "--request-timeout=20s"); got != "hello" {
		t.Errorf("kubectl get --raw --request-timeout: %q", got)
	}
	r := s.ask(s.Config, http.MethodGet, s.pathOf("call", "stream=stdout"))
	if got := body(t, r); r.StatusCode != http.StatusOK || string(got) != "hello\nworld\n" {
		t.Errorf("%d: %q", r.StatusCode, got)
	}
	for name, want := range map[string]string{
		subresources.HeaderUID: string(call.UID), subresources.HeaderOffset: "0", subresources.HeaderBytes: "12",
		subresources.HeaderComplete: "true", subresources.HeaderSHA256: sum([]byte("hello\nworld\n")), subresources.HeaderMissing: "",
		"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff", "Content-Length": "12",
		"Accept-Ranges": "bytes", "Cache-Control": "no-cache, private",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if r := s.ask(s.Config, http.MethodGet, s.pathOf("call", "stream=stderr")); r.StatusCode != http.StatusOK || len(body(t, r)) != 0 {
		t.Errorf("stderr: %d", r.StatusCode)
	}
}

func TestParts(t *testing.T) {
	s := newSpace(t)
	s.finished("call", "0123456789")
	for name, tc := range map[string]struct {
		query, header string
		code          int
		body, content string
	}{
		"offset":         {"offset=7", "", 200, "789", ""},
		"limit":          {"offset=2&limit=3", "", 200, "234", ""},
		"the end":        {"offset=10", "", 200, "", ""},
		"range":          {"", "bytes=2-4", 206, "234", "bytes 2-4/10"},
		"open range":     {"", "bytes=8-", 206, "89", "bytes 8-9/10"},
		"last bytes":     {"", "bytes=-3", 206, "789", "bytes 7-9/10"},
		"range too long": {"", "bytes=8-100", 206, "89", "bytes 8-9/10"},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			headers := []string{}
			if tc.header != "" {
				headers = []string{"Range", tc.header}
			}
			r := s.ask(s.Config, method, s.pathOf("call", tc.query), headers...)
			want := tc.body
			if method == http.MethodHead {
				want = ""
			}
			if got := string(body(t, r)); r.StatusCode != tc.code || got != want || r.ContentLength != int64(len(tc.body)) || r.Header.Get("Content-Range") != tc.content {
				t.Errorf("%s %s: %d %q, length %d, range %q", method, name, r.StatusCode, got, r.ContentLength, r.Header.Get("Content-Range"))
			}
		}
	}
	r := s.ask(s.Config, http.MethodGet, s.pathOf("call", ""), "Range", "bytes=10-")
	if status := statusOf(t, r); status.Code != 416 || status.Reason != subresources.ReasonRangeNotSatisfiable || r.Header.Get("Content-Range") != "bytes */10" {
		t.Errorf("%+v, %q", status, r.Header.Get("Content-Range"))
	}
}

// What a stream that grows has so far is read without waiting for the rest.
func TestAStreamThatGrows(t *testing.T) {
	s := newSpace(t)
	call := s.create(s.admin, "call", "")
	s.setStatus(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning})
	if status := statusOf(t, s.ask(s.Config, http.MethodGet, s.pathOf("call", ""))); status.Code != 503 || status.Details.RetryAfterSeconds < 1 {
		t.Errorf("without a connection: %+v", status)
	}
	s.create(s.admin, "pending", "")
	if r := s.ask(s.Config, http.MethodGet, s.pathOf("pending", "")); r.StatusCode != http.StatusOK || r.Header.Get(subresources.HeaderComplete) != "false" {
		t.Errorf("before the start: %d, %v", r.StatusCode, r.Header)
	}
	if status := statusOf(t, s.ask(s.Config, http.MethodGet, s.pathOf("pending", "offset=1"))); status.Code != 503 {
		t.Errorf("a part, before the start: %+v", status)
	}
	out := s.streams.Add(call, output.Stdout)
	_, _ = out.Write([]byte("0123456789"))
	r := s.ask(s.Config, http.MethodGet, s.pathOf("call", ""), "Range", "bytes=8-")
	if got := string(body(t, r)); got != "89" || r.Header.Get("Content-Range") != "bytes 8-9/*" || r.Header.Get(subresources.HeaderComplete) != "false" {
		t.Errorf("%q, %v", got, r.Header)
	}
	out.Break(errors.New("the store is away"))
	if status := statusOf(t, s.ask(s.Config, http.MethodGet, s.pathOf("call", ""))); status.Code != 503 || !strings.Contains(status.Message, "the store is away") {
		t.Errorf("with a source that fails: %+v", status)
	}
	out.Break(nil)
	out.Leave(2, 5)
	r = s.ask(s.Config, http.MethodGet, s.pathOf("call", ""))
	if got := string(body(t, r)); got != "01" || r.Header.Get(subresources.HeaderMissing) != "2-4" {
		t.Errorf("%q, %v", got, r.Header)
	}
	status := statusOf(t, s.ask(s.Config, http.MethodGet, s.pathOf("call", "offset=3")))
	if status.Code != 410 || status.Reason != subresources.ReasonNotKept || len(status.Details.Causes) != 1 || status.Details.Causes[0].Message != "5" {
		t.Errorf("in what wasn't kept: %+v", status)
	}
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	s := newSpace(t)
	s.finished("call", "x")
	lost := s.create(s.admin, "lost", "")
	s.setStatus(lost, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonPodLost, RetrySafe: ptr.To(false)})
	for query, want := range map[string]struct {
		call string
		code int32
		text string
	}{
		"stream=stdin":  {"call", 400, "unknown stream"},
		"offset=-1":     {"call", 400, "whole number"},
		"tail=1":        {"call", 400, "unknown parameter"},
		"follow=yes":    {"call", 400, "true or false"},
		"offset=2":      {"call", 416, "has 1 bytes"},
		"":              {"none", 404, `toolcalls.toolcall.dev "none" not found`},
		"stream=stdout": {"lost", 410, "not kept"},
		"uid=other":     {"call", 409, "another call"},
	} {
		r := s.ask(s.Config, http.MethodGet, s.pathOf(want.call, query))
		if status := statusOf(t, r); status.Code != want.code || !strings.Contains(status.Message, want.text) {
			t.Errorf("%s?%s: %+v", want.call, query, status)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		if r := s.ask(s.Config, method, s.pathOf("call", "")); r.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, r.StatusCode)
		}
	}
}

// reading reads an answer line by line.
type reading struct {
	t     *testing.T
	lines *bufio.Reader
	*http.Response
}

func (s *space) follow(call, query string) *reading {
	s.t.Helper()
	r := s.ask(s.Config, http.MethodGet, s.pathOf(call, query))
	if r.StatusCode != http.StatusOK || r.ContentLength != -1 {
		s.t.Fatalf("follow: %d, length %d", r.StatusCode, r.ContentLength)
	}
	return &reading{s.t, bufio.NewReader(r.Body), r}
}

func (r *reading) expect(line string) {
	r.t.Helper()
	if got, err := r.lines.ReadString('\n'); err != nil || got != line+"\n" {
		r.t.Fatalf("got %q, %v; want %q", got, err, line)
	}
}

func (r *reading) expectEnd() {
	r.t.Helper()
	if rest, err := io.ReadAll(r.lines); err != nil || len(rest) > 0 {
		r.t.Fatalf("got %q, %v; want the end", rest, err)
	}
}

// Each line is read before the next is written: nothing waits in a buffer.
func TestAFollowGivesWhatComesAtOnce(t *testing.T) {
	s := newSpace(t)
	call := s.create(s.admin, "call", "")
	s.setStatus(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning})
	out := s.streams.Add(call, output.Stdout)
	r := s.follow("call", "follow=true")
	for i := range 20 {
		_, _ = out.Write(fmt.Appendf(nil, "line %d\n", i))
		r.expect(fmt.Sprintf("line %d", i))
	}
	late := s.follow("call", "follow=true&offset=7&limit=14")
	late.expect("line 1")
	late.expect("line 2")
	late.expectEnd()
	out.Finish()
	r.expectEnd()
	all := s.follow("call", "follow=true")
	for i := range 20 {
		all.expect(fmt.Sprintf("line %d", i))
	}
	all.expectEnd()
	eventually(t, func() error {
		if n := out.Readers(); n > 0 {
			return fmt.Errorf("%d readers are open", n)
		}
		return nil
	})
}

func TestAFollowBeginsBeforeTheCall(t *testing.T) {
	s := newSpace(t)
	call := s.create(s.admin, "call", "")
	r := s.follow("call", "follow=true")
	out := s.streams.Add(call, output.Stdout)
	_, _ = out.Write([]byte("hello\n"))
	r.expect("hello")
	// The connection to the runner breaks, and comes back.
	s.streams.Remove(call, output.Stdout)
	again := s.streams.Add(call, output.Stdout)
	_, _ = again.Write([]byte("hello\nworld\n"))
	r.expect("world")
	s.streams.Remove(call, output.Stdout)
	s.setStatus(call, finishedStatus("hello\nworld\nbye\n"))
	r.expect("bye")
	r.expectEnd()
}

func TestAFollowEndsWithACallThatNeverStarts(t *testing.T) {
	s := newSpace(t)
	call := s.create(s.admin, "call", "")
	denied := s.follow("call", "follow=true")
	s.setStatus(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: v1alpha1.ReasonSessionNotAllowed})
	denied.expectEnd()
	call = s.create(s.admin, "deleted", "")
	deleted := s.follow("deleted", "follow=true")
	if err := s.admin.Delete(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	deleted.expectEnd()
}

// Followers share what is kept: each gets every line when it is written.
func TestManyFollowers(t *testing.T) {
	s := newSpace(t)
	call := s.create(s.admin, "call", "")
	s.setStatus(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning})
	out := s.streams.Add(call, output.Stdout)
	followers := make([]*reading, 500)
	for i := range followers {
		followers[i] = s.follow("call", "follow=true")
	}
	for i := range 5 {
		_, _ = out.Write(fmt.Appendf(nil, "line %d\n", i))
		for _, f := range followers {
			f.expect(fmt.Sprintf("line %d", i))
		}
	}
	out.Finish()
	for _, f := range followers {
		f.expectEnd()
	}
}

// A reader that takes nothing holds nobody up, and gets every byte when it goes on.
func TestASlowReader(t *testing.T) {
	s := newSpace(t)
	call := s.create(s.admin, "call", "")
	s.setStatus(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning})
	out := s.streams.Add(call, output.Stdout)
	slow := s.ask(s.Config, http.MethodGet, s.pathOf("call", "follow=true"))
	data := make([]byte, 24<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	for part := range bytesIn(data, 1<<20) {
		_, _ = out.Write(part)
	}
	out.Finish()
	quick := s.ask(s.Config, http.MethodGet, s.pathOf("call", "follow=true"))
	for name, r := range map[string]*http.Response{"quick": quick, "slow": slow} {
		if got := body(t, r); !bytes.Equal(got, data) {
			t.Errorf("the %s reader got %d other bytes", name, len(got))
		}
	}
	whole := s.ask(s.Config, http.MethodGet, s.pathOf("call", ""))
	if got := body(t, whole); sum(got) != whole.Header.Get(subresources.HeaderSHA256) || strconv.Itoa(len(got)) != whole.Header.Get(subresources.HeaderBytes) {
		t.Errorf("%d bytes that don't have the hash", len(got))
	}
}

// bytesIn are the parts of data.
func bytesIn(data []byte, size int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(data) > 0 {
			n := min(size, len(data))
			if !yield(data[:n]) {
				return
			}
			data = data[n:]
		}
	}
}
