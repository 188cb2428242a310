package mcpserver

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"image"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/reply"
	"toolcall.dev/operator/internal/output"
	outputclient "toolcall.dev/operator/internal/output/client"
)

// A call's kept files have links, whose URIs read_output takes; an image is shown.
func TestKeptFilesAreRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var picture bytes.Buffer
	must(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 2, 2))))
	files := map[string][]byte{"out/plot.png": picture.Bytes(), "notes.txt": []byte("0123456789"), "fake\n.png": []byte("<script>")}
	f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if !slices.Equal(call.Spec.Collect, []string{"**/*"}) {
			t.Errorf("collects %v", call.Spec.Collect)
		}
		s := echo(call)
		for _, path := range []string{"out/plot.png", "notes.txt", "fake\n.png", "gone.png"} {
			if path != "gone.png" {
				outputs.AddArtifact(call, path, files[path])
			}
			kind := map[bool]string{true: "image/png", false: "text/plain"}[strings.HasSuffix(path, "png")]
			s.Artifacts = append(s.Artifacts, v1alpha1.Artifact{Path: path, Bytes: int64(len(files[path])), MediaType: kind, SHA256: fmt.Sprintf("%x", sha256.Sum256(files[path]))})
		}
		return s
	})
	session := connected(t, newTestServer(t, f.local(), 8), nil)
	answer, result := use(t, session, "run_command", fields{"command": "x", "collect": []string{"**/*"}})
	if len(answer.Content) != 5 || len(result.Artifacts) != 4 {
		t.Fatalf("%d contents, %+v", len(answer.Content), result)
	}
	uri := func(i int) string { return answer.Content[i+1].(*mcp.ResourceLink).URI }
	if got, result := use(t, session, "read_output", fields{"artifact": uri(1), "offset": 2, "limit": 3}); result.Output != "234" || result.Stream.NextOffset != 5 || got.IsError {
		t.Errorf("a part of a text: %+v", result)
	}
	if got, _ := use(t, session, "read_output", fields{"artifact": "out/plot.png", "call": result.Call}); len(got.Content) != 2 || !bytes.Equal(got.Content[1].(*mcp.ImageContent).Data, files["out/plot.png"]) {
		t.Errorf("an image: %+v", got.Content)
	}
	if got, _ := use(t, session, "read_output", fields{"artifact": uri(2)}); !strings.HasPrefix(textOf(got), `"fake\n.png" is a file of 8 bytes that can't be shown as an image`) {
		t.Errorf("what isn't the image that its name promises: %s", textOf(got))
	}
	if got, failed := use(t, session, "read_output", fields{"artifact": uri(3)}); !got.IsError || failed.Reason == v1alpha1.ReasonCompleted {
		t.Errorf("an image that can't be read: %s", textOf(got))
	}
	for artifact, says := range map[string]string{
		"other.txt": `but out/plot.png, notes.txt, "fake\n.png", gone.png`,
		strings.Replace(uri(1), f.namespace, "other-space", 1): "another namespace than " + f.namespace,
	} {
		arguments := fields{"artifact": artifact, "call": result.Call}
		if got, failed := use(t, session, "read_output", arguments); !got.IsError || failed.Reason != reply.ReasonNotFound || !*failed.RetrySafe || !strings.Contains(textOf(got), says) {
			t.Errorf("%s: %s", artifact, textOf(got))
		}
	}
}

// What isn't text is described. A text may have bytes that aren't.
func TestBinaryOutputIsDescribed(t *testing.T) {
	t.Parallel()
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "c"}}
	call.Status.Artifacts = []v1alpha1.Artifact{{Path: "out.zip", Bytes: 99, MediaType: "application/zip"}, {Path: "a.log", Bytes: 99, MediaType: "text/plain"}}
	const file = `"out.zip" is a binary file of 99 bytes (application/zip), which isn't shown as text: kubectl toolcall artifacts c "out.zip" -n agents gets it;`
	for name, test := range map[string]struct {
		data, artifact string
		offset         int64
		want           string
	}{
		"a NUL in a file":           {"PK\x00", "out.zip", 0, file},
		"another byte in a file":    {"PK\xffxxxxxxx", "out.zip", 7, file},
		"a file's cut characters":   {"\xa9é\xc3", "out.zip", 7, "\uFFFDé"},
		"a file that begins so":     {"\xa9é", "out.zip", 0, file},
		"a text with a NUL":         {"abc\x00d", "a.log", 0, "abc\x00d"},
		"a text with another byte":  {"abcd\xffe", "a.log", 0, "abcd\uFFFDe"},
		"a command's other byte":    {"abcd\xffe", "", 0, "abcd\uFFFDe"},
		"a command's cut character": {"\xa9", "", 7, "\uFFFD"},
		"little but other bytes":    {"\xff\n", "", 7, "\uFFFD\n"},
		"a command's binary output": {strings.Repeat("\x00\xffab", 8), "", 7, "(32 bytes of stdout from offset 7, which are binary and aren't shown as text: kubectl toolcall logs c -n agents --stream stdout gets them)"},
	} {
		query := &outputclient.Query{Artifact: test.artifact, Offset: test.offset, Stream: output.Stdout}
		kept, err := keptFile(call, test.artifact)
		must(t, err)
		got := (&part{data: []byte(test.data), next: test.offset + int64(len(test.data))}).result(call, kept, query)
		if !strings.HasPrefix(got.Output, test.want) || !got.Succeeded || got.Stream == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A call in the background is answered when it runs, goes on, and has its output read and is stopped by name.
func TestACallInTheBackground(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if call.Spec.Cancel {
			return untilCancelled(call)
		}
		if call.Status.Phase == v1alpha1.PhaseRunning {
			return nil
		}
		return &v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning}
	})
	session := connected(t, newTestServer(t, f.local(), 8), nil)
	answer, started := use(t, session, "run_command", fields{"command": "serve", "session": "mine", "background": true})
	call := f.only("running", func(c *v1alpha1.ToolCall) bool { return c.Status.Phase == v1alpha1.PhaseRunning })
	if answer.IsError || started.Reason != reply.ReasonNotFinished || started.Call != call.Name || started.Phase != "Running" ||
		!call.Spec.Background || call.Spec.TimeoutSeconds != nil || call.Spec.Cancel {
		t.Errorf("%+v, %+v", started, call.Spec)
	}
	if _, stopped := use(t, session, "cancel_call", fields{"call": started.Call}); stopped.Phase != "Cancelled" {
		t.Errorf("%+v", stopped)
	}
}

// What a policy allows is listed to those who may read the policy, and to nobody else.
func TestWhatPoliciesAllow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	policy := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	policy.Spec.Binaries = &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Allowed: []string{"git", "ls"}}
	must(t, s.admin.Create(t.Context(), policy))
	t.Cleanup(func() { _ = s.admin.Delete(t.Context(), policy) })
	environment := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "tools"}}
	environment.Spec.Image, environment.Spec.PolicyRef = "example.com/tools:1", &v1alpha1.PolicyReference{Name: policy.Name}
	must(t, s.admin.Create(t.Context(), environment))
	lists := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"executionenvironments"}, Verbs: []string{"list"}}
	blind := s.session(s.user("blind", lists), "/mcp", "")
	if answer, result := use(t, blind, "list_environments", nil); result.Environments[0].Allowed != nil || !strings.Contains(textOf(answer), "isn't visible to you") {
		t.Errorf("who may not read the policy: %s", textOf(answer))
	}
	f := connected(t, newTestServer(t, s.local(), 8), nil)
	if answer, result := use(t, f, "list_environments", nil); result.Environments[0].Allowed == nil || !strings.Contains(textOf(answer), "run_program: git, ls;") {
		t.Errorf("who may: %s", textOf(answer))
	}
}
