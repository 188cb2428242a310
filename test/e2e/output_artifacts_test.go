package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/internal/stream"
)

// What a call made outlives its pod, also when its command failed, and what it made besides isn't kept.
func TestFilesThatACallCollectsAreKept(t *testing.T) {
	everyWay(t, testFilesThatACallCollectsAreKept)
}

func testFilesThatACallCollectsAreKept(t *testing.T, w way) {
	sp := w.newSpace(t)
	sp.needsStore(t)
	call := sp.create(t, collecting(
		shell(`cd /workspace; mkdir sub; printf 'a,b\n' >one.csv; head -c 300000 /dev/zero | tr '\0' x >sub/large; : >sub/empty; echo no >other; exit 3`),
		"/workspace/*.csv", "/workspace/sub/**"))
	done := sp.awaitFinished(t, call)
	expect(t, done, exited(3, "", ""))

	large := strings.Repeat("x", 300000)
	want := map[string]string{"/workspace/one.csv": "a,b\n", "/workspace/sub/empty": "", "/workspace/sub/large": large}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolCall"))
	must(t, sp.client.Get(t.Context(), keyOf(call), object))
	listed, _, err := unstructured.NestedSlice(object.Object, "status", "artifacts")
	must(t, err)
	kept := map[string]any{}
	for _, artifact := range listed {
		fields := artifact.(map[string]any)
		path, _ := fields["path"].(string)
		kept[path] = []any{fields["bytes"], fields["sha256"]}
	}
	said := map[string]any{}
	for path, text := range want {
		said[path] = []any{int64(len(text)), sum(text)}
	}
	if diff := cmp.Diff(said, kept); diff != "" {
		t.Errorf("artifacts (-want +got):\n%s", diff)
	}
	reads := sp.reader(t, "")
	for path, text := range want {
		if got := artifact(t, reads, done, path); got.code != http.StatusOK || string(got.body) != text {
			t.Errorf("%s: %d, %s", path, got.code, clip(string(got.body), 500))
		}
	}
	part := artifact(t, reads, done, "/workspace/sub/large", "Range", "bytes=-10")
	if part.code != http.StatusPartialContent || string(part.body) != large[:10] {
		t.Errorf("the last bytes: %d, %s", part.code, clip(string(part.body), 500))
	}
	if got := artifact(t, reads, done, "/workspace/other"); got.code != http.StatusNotFound && got.code != http.StatusGone {
		t.Errorf("a file that wasn't collected: %d, %s", got.code, clip(string(got.body), 500))
	}
}

func artifact(t *testing.T, c *stream.Client, call *v1alpha1.ToolCall, path string, headers ...string) answered {
	t.Helper()
	request := stream.Request{
		Method: http.MethodGet, Namespace: call.Namespace, Path: "toolcalls/" + call.Name + "/log",
		Query: url.Values{"artifact": {path}}, Header: http.Header{},
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	return send(t, c, request)
}
