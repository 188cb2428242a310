package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/subresources"
	"toolcall.dev/operator/test/internal/stream"
)

// reader reads output through the API server, as somebody else where a user is named.
func (s *suite) reader(t *testing.T, username string, groups ...string) *stream.Client {
	t.Helper()
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: username, Groups: groups}
	c, err := stream.NewClient(config)
	must(t, err)
	return c
}

func logOf(call *v1alpha1.ToolCall, of output.Stream) stream.Log {
	return stream.Log{Namespace: call.Namespace, Name: call.Name, UID: call.UID, Stream: of}
}

// opened is an answer, whose body is closed at the end of the test.
func opened(t *testing.T, c *stream.Client, log stream.Log, query url.Values, headers ...string) *http.Response {
	t.Helper()
	response, err := c.Get(t.Context(), log, query, headers...)
	must(t, err)
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// textOf is the rest of an answer.
func textOf(t *testing.T, from io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(from)
	must(t, err)
	return string(text)
}

func following(offset int) url.Values {
	return url.Values{"follow": {"true"}, "offset": {strconv.Itoa(offset)}}
}

// needsStore is for tests of what is read after the end of a call without a session: it goes with the pod where there is no output
// store.
func (sp *space) needsStore(t *testing.T) {
	t.Helper()
	if sp.way == waySession {
		return
	}
	key := client.ObjectKey{Namespace: operatorNamespace, Name: "toolcall-store"}
	if err := sp.client.Get(t.Context(), key, &appsv1.StatefulSet{}); err != nil {
		t.Fatalf("find the output store (hack/deploy_store.sh installs it): %v", err)
	}
}

// What a process writes is there while it goes on running: for a reader that came before it, and for those that come late.
func TestOutputIsReadWhileTheCallRuns(t *testing.T) {
	sessionFirst(t, testOutputIsReadWhileTheCallRuns, wayCold, wayWarm, wayImage)
}

func testOutputIsReadWhileTheCallRuns(t *testing.T, w way) {
	sp := w.newSpace(t)
	reads := sp.reader(t, "")
	call := sp.create(t, shell("echo first; echo wrong >&2; "+held+"; echo last"))
	early := opened(t, reads, logOf(call, output.Stdout), following(0))
	if early.StatusCode != http.StatusOK || early.ContentLength >= 0 {
		t.Fatalf("the follow is answered %s, with a length of %d: %s", early.Status, early.ContentLength, textOf(t, early.Body))
	}
	live := bufio.NewReader(early.Body)
	line, err := live.ReadString('\n')
	must(t, err)
	if line != "first\n" {
		t.Errorf("the first line is %q", line)
	}
	running := sp.awaitPhase(t, call, v1alpha1.PhaseRunning)
	errs := opened(t, reads, logOf(call, output.Stderr), url.Values{"follow": {"true"}, "limit": {"6"}})
	if text := textOf(t, errs.Body); text != "wrong\n" || errs.Header.Get(subresources.HeaderComplete) != "false" {
		t.Errorf("standard error of the running call is %q, complete: %s", text, errs.Header.Get(subresources.HeaderComplete))
	}
	late := opened(t, reads, logOf(call, output.Stdout), following(0))
	later := opened(t, reads, logOf(call, output.Stdout), following(3))
	must(t, sp.client.Get(t.Context(), keyOf(call), running))
	if running.Status.Phase.Terminal() {
		t.Fatalf("the call has ended %s before it was let go", running.Status.Reason)
	}
	sp.letGo(t, running)
	for name, body := range map[string]io.Reader{"first\nlast\n": late.Body, "st\nlast\n": later.Body, "last\n": live} {
		if text := textOf(t, body); text != name {
			t.Errorf("a follower reads %q, not %q", text, name)
		}
	}
	want := succeeded("first\nlast\n")
	want.Stderr = "wrong\n"
	expect(t, sp.awaitFinished(t, call), want)
}

// Each byte of both streams comes through, while the call runs and after it.
func TestLargeOutputIsByteExact(t *testing.T) {
	coldFirst(t, testLargeOutputIsByteExact, waySession, wayWarm, wayImage)
}

func testLargeOutputIsByteExact(t *testing.T, w way) {
	sp := w.newSpace(t, func(p *v1alpha1.ExecutionPolicySpec) { p.Code = &v1alpha1.CodePolicy{DeniedModules: []string{}} })
	sp.needsStore(t)
	written := stream.Written{Seed: sp.namespace, Blocks: 64}
	reads := sp.reader(t, "")
	call := sp.create(t, code("python", written.Python(2*time.Second)))
	sp.expectWhole(t, reads, call, written)
	done := sp.awaitFinished(t, call)
	if done.Status.Reason != v1alpha1.ReasonCompleted {
		t.Fatalf("it ended %s: %s", done.Status.Reason, done.Status.Message)
	}
	for of, about := range map[output.Stream]v1alpha1.StreamStatus{output.Stdout: done.Status.Streams.Stdout, output.Stderr: done.Status.Streams.Stderr} {
		if about.Bytes != written.Bytes() || about.SHA256 != written.SHA256(of) {
			t.Errorf("%s is %+v", of, about)
		}
	}
	sp.expectWhole(t, reads, done, written)
	expectRanges(t, reads, done, written)
}

// expectWhole follows both streams to their ends.
func (sp *space) expectWhole(t *testing.T, reads *stream.Client, call *v1alpha1.ToolCall, written stream.Written) {
	t.Helper()
	var group errgroup.Group
	for _, of := range []output.Stream{output.Stdout, output.Stderr} {
		group.Go(func() error {
			checker := stream.NewChecker(written.Reader(of))
			f := &stream.Follower{Client: reads, Log: logOf(call, of), To: checker}
			if err := f.Run(t.Context()); err != nil {
				return err
			}
			if sum := written.SHA256(of); f.SHA256 != sum {
				return fmt.Errorf("%s has the hash %q, not %s", of, f.SHA256, sum)
			}
			return checker.Rest()
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// expectRanges asks for parts of a stream that is complete.
func expectRanges(t *testing.T, reads *stream.Client, call *v1alpha1.ToolCall, written stream.Written) {
	t.Helper()
	all := textOf(t, written.Reader(output.Stderr))
	size := len(all)
	for name, test := range map[string]struct {
		query        url.Values
		header       string
		code         int
		want         string
		contentRange string
	}{
		"an offset and a limit": {url.Values{"offset": {"65530"}, "limit": {"100"}}, "", http.StatusOK, all[65530:65630], ""},
		"the first bytes":       {nil, "bytes=0-1023", http.StatusPartialContent, all[:1024], fmt.Sprintf("bytes 0-1023/%d", size)},
		"64 KiB in the middle":  {nil, "bytes=1000001-1065536", http.StatusPartialContent, all[1000001:1065537], fmt.Sprintf("bytes 1000001-1065536/%d", size)},
		"the last bytes":        {nil, "bytes=-10", http.StatusPartialContent, all[size-10:], fmt.Sprintf("bytes %d-%d/%d", size-10, size-1, size)},
		"nothing behind it":     {nil, fmt.Sprintf("bytes=%d-", size), http.StatusRequestedRangeNotSatisfiable, "", fmt.Sprintf("bytes */%d", size)},
	} {
		var headers []string
		if test.header != "" {
			headers = []string{"Range", test.header}
		}
		answer := opened(t, reads, logOf(call, output.Stderr), test.query, headers...)
		text := textOf(t, answer.Body)
		if answer.StatusCode != test.code || answer.Header.Get("Content-Range") != test.contentRange {
			t.Errorf("%s: %s, Content-Range %q", name, answer.Status, answer.Header.Get("Content-Range"))
		}
		if test.want == "" {
			continue
		}
		if text != test.want {
			t.Errorf("%s: %d bytes, which aren't those that were asked for", name, len(text))
		}
		expectHeaders(t, name, answer.Header, call, written)
	}
}

func expectHeaders(t *testing.T, name string, got http.Header, call *v1alpha1.ToolCall, written stream.Written) {
	t.Helper()
	for header, want := range map[string]string{
		subresources.HeaderUID: string(call.UID), subresources.HeaderBytes: strconv.FormatInt(written.Bytes(), 10), subresources.HeaderComplete: "true",
		subresources.HeaderSHA256: written.SHA256(output.Stderr), subresources.HeaderMissing: "", "Accept-Ranges": "bytes",
	} {
		if got.Get(header) != want {
			t.Errorf("%s: %s is %q, not %q", name, header, got.Get(header), want)
		}
	}
}

// The group of subresources changes nothing for kubectl: the kinds' names and short names mean the objects, and a path means the
// output.
func TestKubectlReadsOutputAndStillMeansOurKinds(t *testing.T) {
	coldFirst(t, testKubectlReadsOutputAndStillMeansOurKinds, waySession)
}

func testKubectlReadsOutputAndStillMeansOurKinds(t *testing.T, w way) {
	sp := w.newSpace(t)
	call := sp.run(t, shell("echo out; echo err >&2"))
	path := fmt.Sprintf("%s/namespaces/%s/toolcalls/%s/log", stream.Group, sp.namespace, call.Name)
	for args, want := range map[string]string{
		"get --raw " + path:                       "out\n",
		"get --raw " + path + "?stream=stderr":    "err\n",
		"get --raw " + path + "?offset=1&limit=2": "ut",
		"get toolcalls -o name " + call.Name:      "toolcall.toolcall.dev/" + call.Name + "\n",
		"get tc -o name " + call.Name:             "toolcall.toolcall.dev/" + call.Name + "\n",
	} {
		if said, err := sp.kubectl(t, append(strings.Fields(args), "-n", sp.namespace)...); err != nil || said != want {
			t.Errorf("kubectl %s prints %q, not %q: %v", args, said, want, err)
		}
	}
	session := sp.createSession(t, "named")
	for _, kind := range []string{"toolsessions", "tsn"} {
		if said, err := sp.kubectl(t, "get", kind, "-o", "name", "-n", sp.namespace, session.Name); err != nil || said != "toolsession.toolcall.dev/named\n" {
			t.Errorf("kubectl get %s prints %q: %v", kind, said, err)
		}
	}
}
