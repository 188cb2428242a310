package result

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func finished(stdout, stderr []byte, keep int) *Outcome {
	start := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	return &Outcome{
		Reason: NonZeroExit, Message: "The command exited with code 3.", Started: true, ExitCode: Exit(3),
		StartTime: start, CompletionTime: start.Add(1500 * time.Millisecond), DurationMS: 1500,
		Stdout: captured(stdout, keep), Stderr: captured(stderr, keep), WorkingDir: "/workspace",
		Usage: mostUsage(),
	}
}

// mostUsage has the largest number in each field.
func mostUsage() *Usage {
	n := func() *int64 { return new(int64(1<<63 - 1)) }
	return &Usage{CPUMilliseconds: n(), MaxRSSBytes: n(), ReadBytes: n(), WrittenBytes: n(), PeakProcesses: n()}
}

func TestTerminationOfSmallOutputIsTheOutcome(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{
		"nothing":     nil,
		"text":        []byte("hällo \"wörld\"\n\t\\ <&> \u2028 done\n"),
		"NULs":        []byte("a\x00b\x00"),
		"binary":      {0xff, 0xfe, 0, 1, 2, 0x80},
		"only binary": bytes.Repeat([]byte{0xff}, 300),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := finished(data, []byte("err\n"), 1<<16)
			got, err := DecodeTermination(EncodeTermination(o, MaxTermination))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(normal(o), normal(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// normal makes whole streams comparable: where they are split doesn't matter.
func normal(o *Outcome) *Outcome {
	c := *o
	for _, s := range []*Stream{&c.Stdout, &c.Stderr} {
		if s.Whole() {
			s.Head, s.Tail = append([]byte{}, s.joined()...), nil
		}
	}
	return &c
}

func TestTerminationFillsItsRoomAndNoMore(t *testing.T) {
	t.Parallel()
	random := rand.NewChaCha8([32]byte{1})
	noise := make([]byte, 1<<20)
	_, _ = random.Read(noise)
	for name, data := range map[string][]byte{
		"text":               []byte(strings.Repeat("a line of text\n", 1<<16)),
		"wide text":          []byte(strings.Repeat("😀é€", 1<<16)),
		"NULs":               make([]byte, 1<<20),
		"quotes":             []byte(strings.Repeat(`"`, 1<<20)),
		"escape sequences":   []byte(strings.Repeat("\x1b[31mred\x1b[0m", 1<<16)),
		"line separators":    []byte(strings.Repeat("\u2028", 1<<18)),
		"random bytes":       noise,
		"one invalid byte":   append([]byte("\xff"), strings.Repeat("text ", 1<<16)...),
		"HTML":               []byte(strings.Repeat("<b>&</b>", 1<<16)),
		"delete and C1 only": []byte(strings.Repeat("\x7f\u0085", 1<<16)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, o := range []*Outcome{finished(data, nil, 1<<16), finished(nil, data, 1<<16), finished(data, data, 1<<16), finished(data[:3000], data, 1<<16)} {
				checkFull(t, o)
			}
		})
	}
}

func checkFull(t *testing.T, o *Outcome) {
	t.Helper()
	out := EncodeTermination(o, MaxTermination)
	if len(out) > MaxTermination || len(out) < MaxTermination*9/10 || !json.Valid(out) || !utf8.Valid(out) {
		t.Errorf("%d bytes: %.100q", len(out), out)
	}
	got, err := DecodeTermination(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range [][2]Stream{{o.Stdout, got.Stdout}, {o.Stderr, got.Stderr}} {
		checkPart(t, s[0], s[1])
	}
}

// checkPart checks that got holds a beginning and an end of what all does, and knows as much of the whole.
func checkPart(t *testing.T, all, got Stream) {
	t.Helper()
	if got.Bytes != all.Bytes || got.SHA256 != all.SHA256 || got.InvalidUTF8 != all.InvalidUTF8 {
		t.Errorf("got %d %s, want %d %s", got.Bytes, got.SHA256, all.Bytes, all.SHA256)
	}
	first, last := all.Head, all.Tail
	if all.Whole() {
		first, last = all.joined(), all.joined()
	}
	if got.Whole() {
		if !bytes.Equal(got.joined(), first) {
			t.Error("a whole stream differs")
		}
		return
	}
	if !bytes.HasPrefix(first, got.Head) || !bytes.HasSuffix(last, got.Tail) {
		t.Errorf("got %q ... %q", got.Head, got.Tail)
	}
}

func TestTerminationHasWhatAFileActionDid(t *testing.T) {
	t.Parallel()
	o := finished([]byte("line\n"), nil, 100)
	o.Reason, o.ExitCode, o.Usage, o.File = Completed, nil, nil, &File{Path: "/workspace/a", Lines: new(int64(1)), Truncated: true, NextOffset: new(int64(2))}
	got, err := DecodeTermination(EncodeTermination(o, MaxTermination))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(normal(o), normal(got)); diff != "" {
		t.Error(diff)
	}
	long := *o
	long.Stdout = captured(bytes.Repeat([]byte("line\n"), 5000), 25000)
	if got, err := DecodeTermination(EncodeTermination(&long, MaxTermination)); err != nil || !got.File.Truncated || got.File.NextOffset != nil || got.File.Lines != nil {
		t.Errorf("of a Read that doesn't fit: %+v, %v", got.File, err)
	}
	o.File.Path = strings.Repeat("\x01", MaxFilePath)
	out := EncodeTermination(o, MaxTermination)
	if got, err := DecodeTermination(out); err != nil || got.File == nil || got.File.Path != "" || *got.File.NextOffset != 2 || len(out) > MaxTermination {
		t.Errorf("%d bytes: %v", len(out), err)
	}
}

func TestTerminationLeavesOutWhatHasNoRoom(t *testing.T) {
	t.Parallel()
	o := finished([]byte("out"), []byte("err"), 100)
	o.Message = strings.Repeat("\x00", 30000)
	o.WorkingDir = "/" + strings.Repeat("d", 4000)
	for _, limit := range []int{0, minTermination, 2048, MaxTermination} {
		out := EncodeTermination(o, limit)
		got, err := DecodeTermination(out)
		if err != nil || len(out) > max(limit, minTermination) {
			t.Fatalf("limit %d: %d bytes, %v", limit, len(out), err)
		}
		if text, _ := got.Stdout.Text(100); text != "out" || got.WorkingDir != "" {
			t.Errorf("limit %d: got %q, %q", limit, text, got.WorkingDir)
		}
	}
}

func TestDecodeTerminationTakesNothingOnTrust(t *testing.T) {
	t.Parallel()
	good := string(EncodeTermination(finished([]byte("out"), nil, 100), MaxTermination))
	for name, message := range map[string]string{
		"nothing":          "",
		"not JSON":         "container died",
		"another type":     `[]`,
		"null":             `null`,
		"another version":  strings.Replace(good, `"v":1`, `"v":2`, 1),
		"more after it":    good + good,
		"an unknown field": strings.Replace(good, `"v":1`, `"v":1,"phase":"Succeeded"`, 1),
		"cut short":        good[:len(good)/2],
		"too long":         good + strings.Repeat(" ", MaxTermination),
		"a foreign reason": strings.Replace(good, NonZeroExit, "Denied", 1),
		"a false code":     strings.Replace(good, `"exitCode":3`, `"exitCode":0`, 1),
		"a huge code":      strings.Replace(good, `"exitCode":3`, `"exitCode":99999999999`, 1),
		"changed output":   strings.Replace(good, `"out"`, `"0ut"`, 1),
		"both kinds":       strings.Replace(good, `"head":"out"`, `"head":"out","tail64":"AAAA"`, 1),
		"negative bytes":   strings.Replace(good, `"bytes":3`, `"bytes":-3`, 1),
		"a bad hash":       strings.Replace(good, `"sha256":"`, `"sha256":"zz`, 1),
		"deep nesting":     strings.Repeat("[", 4000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if message == good {
				t.Fatal("the case changes nothing")
			}
			if o, err := DecodeTermination([]byte(message)); err == nil {
				t.Errorf("accepted: %+v", o)
			}
		})
	}
}

func FuzzTermination(f *testing.F) {
	f.Add([]byte("hello\n"), []byte("\xff\x00"), 100, "message", "/workspace")
	f.Add(bytes.Repeat([]byte("\x1b\u2028é"), 500), bytes.Repeat([]byte{0xe2, 0x82}, 900), 2001, "\xff", "\x00")
	f.Fuzz(func(t *testing.T, stdout, stderr []byte, keep int, message, dir string) {
		o := finished(stdout, stderr, abs(keep)%(1<<17))
		o.Message, o.WorkingDir = message, dir
		out := EncodeTermination(o, MaxTermination)
		if len(out) > MaxTermination || !json.Valid(out) || !utf8.Valid(out) {
			t.Fatalf("%d bytes: %q", len(out), out)
		}
		got, err := DecodeTermination(out)
		if err != nil {
			t.Fatalf("%v: %q", err, out)
		}
		checkPart(t, o.Stdout, got.Stdout)
		checkPart(t, o.Stderr, got.Stderr)
	})
}

func FuzzDecodeTermination(f *testing.F) {
	f.Add(EncodeTermination(finished([]byte("hello\n"), []byte("\xff"), 100), MaxTermination))
	f.Add([]byte(`{"v":1,"reason":"CancelRequested"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := DecodeTermination(b)
		if err != nil {
			return
		}
		if err := o.Validate(); err != nil {
			t.Errorf("accepted, but invalid: %v", err)
		}
		again, err := DecodeTermination(EncodeTermination(o, MaxTermination))
		if err != nil || again.Reason != o.Reason || again.Stdout.Bytes != o.Stdout.Bytes {
			t.Errorf("doesn't survive being written again: %v, %+v", err, o)
		}
	})
}

func BenchmarkEncodeTermination(b *testing.B) {
	o := finished(bytes.Repeat([]byte("a line of text\n"), 1<<16), []byte("err"), 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		EncodeTermination(o, MaxTermination)
	}
}
