package subresources

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/result"
)

// captured is what a supervisor keeps of a stream: all of it, or so many bytes of each end.
func captured(data []byte, ends int) result.Stream {
	sum := sha256.Sum256(data)
	s := result.Stream{Head: data, Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:]), InvalidUTF8: !utf8.Valid(data)}
	if len(data) > 2*ends {
		s.Head, s.Tail = data[:ends], data[len(data)-ends:]
	}
	return s
}

// ended is a call whose status has the stream, as the operator writes it.
func ended(s result.Stream, limit int) *v1alpha1.ToolCall {
	text, cut := s.Text(limit)
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "call", UID: "uid"}}
	call.Status = v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhaseSucceeded, Stdout: text,
		Streams: &v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: s.Bytes, SHA256: s.SHA256, Truncated: cut, InvalidUTF8: s.InvalidUTF8}},
	}
	return call
}

// readKept reads all that a stream keeps, and compares it with what the process wrote.
func readKept(t *testing.T, call *v1alpha1.ToolCall, data []byte) output.Info {
	t.Helper()
	r := keptIn(&call.Status, output.Stdout)
	info := r.Info()
	if info.Bytes != int64(len(data)) || !info.Complete {
		t.Fatalf("%d bytes were written: %+v", len(data), info)
	}
	buffer := make([]byte, 3)
	for at := int64(0); ; {
		n, err := r.ReadAt(t.Context(), buffer, at)
		var missing *output.MissingError
		switch {
		case errors.Is(err, io.EOF):
			if at != info.Bytes {
				t.Fatalf("the stream of %d bytes ends at %d", info.Bytes, at)
			}
			return info
		case errors.As(err, &missing):
			if at != info.Missing.Start || missing.Next != info.Missing.End || missing.Next <= at {
				t.Fatalf("at %d: %v; %+v", at, err, info)
			}
			at = missing.Next
		case err != nil || n == 0:
			t.Fatalf("at %d: %d bytes, %v", at, n, err)
		default:
			if !bytes.Equal(buffer[:n], data[at:at+int64(n)]) {
				t.Fatalf("at %d: got %q, the process wrote %q; status %q, %+v", at, buffer[:n], data[at:at+int64(n)], call.Status.Stdout, info)
			}
			at += int64(n)
		}
	}
}

func TestTheStatusGivesWhatItKeepsByteForByte(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 20)
	for name, tc := range map[string]struct {
		data        string
		ends, limit int
		missing     output.Range
	}{
		"nothing written":                       {"", 100, 100, output.Range{}},
		"all kept":                              {"hello\nworld", 100, 100, output.Range{}},
		"a replacement character of its own":    {"a\ufffdb", 100, 100, output.Range{}},
		"cut, with a newline added":             {long, 10, 100, output.Range{Start: 10, End: 190}},
		"cut after a newline of its own":        {strings.Repeat("123456789\n", 20), 10, 100, output.Range{Start: 9, End: 190}},
		"nothing but the line":                  {long, 100, 0, output.Range{Start: 0, End: 200}},
		"one byte that isn't UTF-8":             {"abc\xffdef", 100, 100, output.Range{Start: 3, End: 4}},
		"two bytes that aren't UTF-8":           {"abc\xffd\xffef", 100, 100, output.Range{Start: 3, End: 6}},
		"cut, with bytes that aren't UTF-8":     {"ab\xff" + long + "\xffcd", 8, 100, output.Range{Start: 2, End: 204}},
		"cut, and invalid in the part left out": {long + "\xff" + long, 10, 100, output.Range{Start: 10, End: 391}},
		"a line like ours in a whole text":      {"a\n[... 5 bytes left out ...]\nb", 100, 100, output.Range{}},
		"a line like ours, with another number": {"[... 9 bytes left out ...]\n" + long, 40, 100, output.Range{Start: 0, End: 187}},
		"the true line, written by the process": {"a\n[... 164 bytes left out ...]\nb" + long, 34, 100, output.Range{Start: 1, End: 198}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			info := readKept(t, ended(captured([]byte(tc.data), tc.ends), tc.limit), []byte(tc.data))
			if info.Missing != tc.missing {
				t.Errorf("missing %+v, want %+v", info.Missing, tc.missing)
			}
		})
	}
}

func FuzzTheStatusGivesNothingThatWasNotWritten(f *testing.F) {
	for _, seed := range []string{"", "a\nb", "\xff\xfe", "[... 1 byte left out ...]\n", "é\n[... 12 bytes left out ...]\n\n[... 12 bytes left out ...]\n", "\ufffd\n[... "} {
		f.Add([]byte(seed), uint8(3), uint8(6))
		f.Add([]byte(strings.Repeat(seed, 9)), uint8(20), uint8(40))
	}
	f.Fuzz(func(t *testing.T, data []byte, ends, limit uint8) {
		readKept(t, ended(captured(data, int(ends)), int(limit)), data)
	})
}

// A process that knows how much it writes can write the line that the operator writes. Nothing is told wrong for that.
func TestAForgedLineMovesNoByte(t *testing.T) {
	t.Parallel()
	forged := "x\n[... 70 bytes left out ...]\ny"
	for ends := 1; ends < 80; ends++ {
		for filler := range 160 {
			data := forged + strings.Repeat("z", filler) + forged
			readKept(t, ended(captured([]byte(data), ends), 2*ends), []byte(data))
		}
	}
}

func TestAStatusThatContradictsItselfGivesNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha1.ToolCallStatus){
		"shorter than it says":   func(s *v1alpha1.ToolCallStatus) { s.Stdout = "abc" },
		"longer than it says":    func(s *v1alpha1.ToolCallStatus) { s.Stdout += "x" },
		"cut without the line":   func(s *v1alpha1.ToolCallStatus) { s.Streams.Stdout.Truncated = true },
		"invalid without a sign": func(s *v1alpha1.ToolCallStatus) { s.Streams.Stdout.InvalidUTF8 = true },
	} {
		call := ended(captured([]byte("hello"), 100), 100)
		change(&call.Status)
		if got := keptIn(&call.Status, output.Stdout).Info().Missing; got != (output.Range{Start: 0, End: 5}) {
			t.Errorf("%s: missing %+v", name, got)
		}
	}
}

func TestTheStatusHasStreamsOfCallsThatEnded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status v1alpha1.ToolCallStatus
		has    bool
	}{
		"pending":                   {v1alpha1.ToolCallStatus{}, false},
		"running":                   {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning}, false},
		"denied":                    {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied}, true},
		"never started":             {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, RetrySafe: ptr.To(true)}, true},
		"its pod was lost":          {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, RetrySafe: ptr.To(false)}, false},
		"nobody knows":              {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed}, false},
		"ended, with empty streams": {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Streams: &v1alpha1.StreamsStatus{}}, true},
	} {
		for _, stream := range []output.Stream{output.Stdout, output.Stderr} {
			r := keptIn(&tc.status, stream)
			if tc.has != (r != nil) {
				t.Errorf("%s: %+v", name, r)
			}
			if r != nil && (r.Info().Bytes != 0 || !r.Info().Complete) {
				t.Errorf("%s: %+v", name, r.Info())
			}
		}
		if keptIn(&tc.status, "") != nil {
			t.Errorf("%s: it has an artifact", name)
		}
	}
}
