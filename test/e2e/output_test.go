package e2e

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

func keeps(bytes int32) func(*v1alpha1.ExecutionPolicySpec) {
	return func(p *v1alpha1.ExecutionPolicySpec) {
		p.Output = &v1alpha1.OutputPolicy{MaxBytesPerStream: ptr.To(bytes)}
		p.Code = &v1alpha1.CodePolicy{DeniedModules: []string{}}
	}
}

func TestOutputThatIsNotUTF8(t *testing.T) {
	coldFirst(t, testOutputThatIsNotUTF8, waySession, wayWarm, wayImage)
}

func testOutputThatIsNotUTF8(t *testing.T, w way) {
	sp := w.newSpace(t)
	// An overlong sequence, a lone continuation byte, a cut three-byte character, and Latin-1.
	raw := "ok \xc3\xa4 \xc0\xaf \x80 \xe2\x82 gr\xfc\xdfe\n\xff"
	call := sp.run(t, shell(fmt.Sprintf(`printf '%s'; printf '\xfe' >&2`, octal(raw))))
	want := succeeded("ok ä \uFFFD\uFFFD \uFFFD \uFFFD gr\uFFFD\uFFFDe\n\uFFFD")
	want.Stderr = "\uFFFD"
	expect(t, call, want)
	got, streams := *call.Status.Streams, v1alpha1.StreamsStatus{
		Stdout: v1alpha1.StreamStatus{Bytes: int64(len(raw)), SHA256: sum(raw), InvalidUTF8: true},
		Stderr: v1alpha1.StreamStatus{Bytes: 1, SHA256: sum("\xfe"), InvalidUTF8: true},
	}
	// The status doesn't have the bytes, so the output store does.
	if got.Stdout.State != v1alpha1.StreamComplete || got.Stderr.State != v1alpha1.StreamComplete {
		t.Errorf("stored are %s and %s", got.Stdout.State, got.Stderr.State)
	}
	if got.Stdout, got.Stderr = ofProcess(got.Stdout), ofProcess(got.Stderr); got != streams {
		t.Errorf("streams are %+v, not %+v", got, streams)
	}
}

// octal writes bytes as bash's printf takes them.
func octal(raw string) string {
	var b strings.Builder
	for i := range len(raw) {
		fmt.Fprintf(&b, `\%03o`, raw[i])
	}
	return b.String()
}

func TestLargeOutputKeepsItsEnds(t *testing.T) {
	sessionFirst(t, testLargeOutputKeepsItsEnds, wayCold, wayWarm, wayImage)
}

func testLargeOutputKeepsItsEnds(t *testing.T, w way) {
	sp := w.newSpace(t)
	// Long lines: with the kubelet's prefix on each it must stay under the 10 MiB at which logs are rotated.
	const lines, width, kept = 5 << 12, 256, 65536
	call := sp.run(t, code("python", fmt.Sprintf("for i in range(%d): print('%%0255d' %% i)", lines)))
	var all strings.Builder
	for i := range lines {
		fmt.Fprintf(&all, "%0255d\n", i)
	}
	text := all.String()
	want := text[:kept/2] + fmt.Sprintf("[... %d bytes left out ...]\n", len(text)-kept) + text[len(text)-kept/2:]
	expect(t, call, succeeded(want))
	about := v1alpha1.StreamStatus{Bytes: lines * width, SHA256: sum(text), Truncated: true}
	if ofProcess(call.Status.Streams.Stdout) != about {
		t.Errorf("stdout is %+v, not %+v", call.Status.Streams.Stdout, about)
	}
	if call.Status.Streams.Stderr.Truncated {
		t.Error("stderr, which is empty, is said to be truncated")
	}
	if log := sp.podLog(t, call); !strings.Contains(log, text[kept:kept+10*width]) {
		t.Error("the pod's log lacks what the status leaves out")
	}
}

// The most that the policy allows, on both streams, can be more than an object can hold: it is cut further then, and
// said so, but the result is written.
func TestMostOutputStillFitsIntoTheObject(t *testing.T) {
	sessionFirst(t, testMostOutputStillFitsIntoTheObject, wayCold)
}

func testMostOutputStillFitsIntoTheObject(t *testing.T, w way) {
	sp := w.newSpace(t, keeps(v1alpha1.MaxBytesPerStream))
	for name, test := range map[string]struct {
		unit string
		cut  bool
	}{
		"of plain characters":                       {"x", false},
		"of characters that JSON escapes":           {"\x01", true},
		"of characters of four bytes":               {"🙂", false},
		"of bytes that become three, replaced each": {"\xff", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count := v1alpha1.MaxBytesPerStream / len(test.unit)
			call := sp.run(t, code("python", fmt.Sprintf(
				"import sys\nraw = bytes.fromhex('%x') * %d\nsys.stdout.buffer.write(raw)\nsys.stderr.buffer.write(raw)", test.unit, count)))
			if call.Status.Reason != v1alpha1.ReasonCompleted {
				t.Fatalf("it ended %s: %s", call.Status.Reason, call.Status.Message)
			}
			text := strings.Repeat(test.unit, count)
			want := v1alpha1.StreamStatus{Bytes: v1alpha1.MaxBytesPerStream, SHA256: sum(text), Truncated: test.cut, InvalidUTF8: test.unit == "\xff"}
			for stream, about := range map[string]v1alpha1.StreamStatus{"stdout": call.Status.Streams.Stdout, "stderr": call.Status.Streams.Stderr} {
				if ofProcess(about) != want {
					t.Errorf("%s is %+v, not %+v", stream, about, want)
				}
			}
			for _, text := range []string{call.Status.Stdout, call.Status.Stderr} {
				if strings.Contains(text, " bytes left out ...]\n") != test.cut {
					t.Error("the texts don't say rightly whether something was left out")
				}
			}
		})
	}
}

// ofProcess is what is said of a stream itself, without that of the store.
func ofProcess(about v1alpha1.StreamStatus) v1alpha1.StreamStatus {
	about.Kept, about.State = nil, ""
	return about
}
