package e2e

import (
	"bytes"
	"fmt"
	"image/color"
	"image/png"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/subresources"
	"toolcall.dev/operator/internal/testing/full"
)

// diagonal draws a PNG of 64 x 32 pixels: a black line on white, with nothing but the standard library.
const diagonal = `
import struct, zlib
rows = [bytearray(b"\xff" * 64) for _ in range(32)]
for x in range(64):
    rows[x // 2][x] = 0
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
with open("line.png", "wb") as f:
    f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 32, 8, 0, 0, 0, 0)))
    f.write(chunk(b"IDAT", zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))) + chunk(b"IEND", b""))
`

func collecting(spec v1alpha1.ToolCallSpec, globs ...string) v1alpha1.ToolCallSpec {
	spec.Collect = globs
	return spec
}

// artifact reads an artifact of a call as a client with a kubeconfig does.
func (sp *space) artifact(t *testing.T, call *v1alpha1.ToolCall, path string, headers ...string) ([]byte, error) {
	t.Helper()
	request := sp.clients.CoreV1().RESTClient().Get().
		AbsPath(fmt.Sprintf("/apis/%s/namespaces/%s/toolcalls/%s/log", subresources.GroupVersion, call.Namespace, call.Name)).Param("artifact", path)
	for i := 0; i < len(headers); i += 2 {
		request.SetHeader(headers[i], headers[i+1])
	}
	return request.DoRaw(t.Context())
}

func TestAPlotThatACallMadeIsReadBack(t *testing.T) {
	full.Only(t, "TestFilesThatACallCollectsAreKept reads files back")
	t.Parallel()
	sp := newSpace(t)
	run := sp.desk(t, "desk")
	call := run(collecting(code("python", diagonal), "*.png"))
	expect(t, call, succeeded(""))
	if len(call.Status.Artifacts) != 1 || call.Status.OmittedArtifacts != 0 || call.Status.ArtifactsMessage != "" {
		t.Fatalf("the call has %+v, and says %q", call.Status.Artifacts, call.Status.ArtifactsMessage)
	}
	about := call.Status.Artifacts[0]
	if about.Path != "line.png" || about.MediaType != "image/png" {
		t.Errorf("the artifact is %+v", about)
	}
	// What a later call does to the file changes nothing.
	expect(t, run(shell("rm line.png")), succeeded(""))
	raw, err := sp.artifact(t, call, "line.png")
	must(t, err)
	if int64(len(raw)) != about.Bytes || sum(string(raw)) != about.SHA256 {
		t.Errorf("read %d bytes, and the status says %+v", len(raw), about)
	}
	plot, err := png.Decode(bytes.NewReader(raw))
	must(t, err)
	if size := plot.Bounds().Size(); size.X != 64 || size.Y != 32 {
		t.Fatalf("the plot has %d x %d pixels", size.X, size.Y)
	}
	for _, pixel := range []struct {
		x, y int
		want uint8
	}{{0, 0, 0}, {63, 31, 0}, {63, 0, 255}, {0, 31, 255}} {
		if got := color.GrayModel.Convert(plot.At(pixel.x, pixel.y)).(color.Gray); got.Y != pixel.want {
			t.Errorf("the pixel at %d, %d is %d", pixel.x, pixel.y, got.Y)
		}
	}
	part, err := sp.artifact(t, call, "line.png", "Range", "bytes=1-3")
	must(t, err)
	if string(part) != "PNG" {
		t.Errorf("a range is %q", part)
	}
	path := fmt.Sprintf("/apis/%s/namespaces/%s/toolcalls/%s/log?artifact=other.png", subresources.GroupVersion, call.Namespace, call.Name)
	if said, err := sp.kubectl(t, "get", "--raw", path); err == nil || !strings.Contains(said+err.Error(), `it has "line.png"`) {
		t.Errorf("another path: %s, %v", said, err)
	}
}

func TestWhatACallCollectsChangesNotHowItEnds(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	run := sp.desk(t, "desk")
	failed := run(collecting(shell("mkdir out; echo kept >out/log; ln -s /etc/passwd out/passwd; mkfifo out/fifo; exit 7"), "out/*", "/etc/*", "none/*"))
	if failed.Status.Reason != v1alpha1.ReasonNonZeroExit || *failed.Status.ExitCode != 7 {
		t.Errorf("it ended %s: %s", failed.Status.Reason, failed.Status.Message)
	}
	if a := failed.Status.Artifacts; len(a) != 1 || a[0].Path != "out/log" || a[0].SHA256 != sum("kept\n") || failed.Status.OmittedArtifacts != 2 {
		t.Errorf("it has %+v, %d were left out", a, failed.Status.OmittedArtifacts)
	}
	for _, says := range []string{"out/fifo", `"/etc/*" can't be collected`, `"none/*" matches no file`} {
		if !strings.Contains(failed.Status.ArtifactsMessage, says) {
			t.Errorf("the message lacks %q: %s", says, failed.Status.ArtifactsMessage)
		}
	}
	denied := run(collecting(shell("true"), "../*"))
	if denied.Status.Phase != v1alpha1.PhaseDenied || denied.Status.Reason != v1alpha1.ReasonInvalidArguments {
		t.Errorf("a glob that leads out: %s/%s", denied.Status.Phase, denied.Status.Reason)
	}
	if _, err := sp.artifact(t, denied, "x"); !apierrors.IsNotFound(err) {
		t.Errorf("of a call that never ran: %v", err)
	}
}
