package files

import (
	"strings"
	"testing"

	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/spec"
)

func TestReadingBehindTheEndSaysWhereItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.file("three", "a\nb\nc\n")
	w.file("one", "a")
	w.file("empty", "")
	for _, tc := range []struct {
		read spec.File
		note string
	}{
		{spec.File{Path: "three", Offset: 100}, "has 3 lines: nothing is at offset 100"},
		{spec.File{Path: "three", Offset: 4}, "has 3 lines: nothing is at offset 4"},
		{spec.File{Path: "three", Offset: 3}, ""},
		{spec.File{Path: "one", Offset: 2}, "has 1 line: nothing is at offset 2"},
		{spec.File{Path: "empty"}, "is empty"},
		{spec.File{Path: "empty", Offset: 7}, "is empty"},
		{spec.File{Path: "empty", Unit: spec.UnitBytes}, "is empty"},
		{spec.File{Path: "three", Offset: 6, Unit: spec.UnitBytes}, "has 6 bytes: nothing is at offset 6"},
		{spec.File{Path: "three", Offset: 5, Unit: spec.UnitBytes}, ""},
	} {
		tc.read.Operation = spec.OperationRead
		if out, result := w.must(tc.read); result.Note != tc.note || (out == "") != (tc.note != "") {
			t.Errorf("%+v: %q, %q", tc.read, result.Note, out)
		}
	}
}

func TestABinaryFileIsDescribed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for content, note := range map[string]string{
		"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR":                     "is a binary file of 16 bytes",
		strings.Repeat("\xff\xd8 ", 1000):                         "is a binary file of 3000 bytes",
		"\xff\xfeh\x00i\x00":                                      "is text in UTF-16, of 6 bytes",
		"caf\xe9 one\nplain two\n":                                "",
		strings.Repeat("\u65e5\u672c\u8a9e\n", sys.BufferBytes/4): "",
	} {
		w.file("f", content)
		out, result := w.must(spec.File{Operation: spec.OperationRead, Path: "f"})
		if !strings.HasPrefix(result.Note, note) || result.Binary != (note != "") || note == "" && result.Note != "" {
			t.Errorf("%.20q: %t, %q", content, result.Binary, result.Note)
		}
		// The output is what was read all the same.
		if !strings.HasPrefix(content, out) || out == "" {
			t.Errorf("%.20q: it reads %.20q", content, out)
		}
		_, inBytes := w.must(spec.File{Operation: spec.OperationRead, Path: "f", Unit: spec.UnitBytes})
		if inBytes.Binary != result.Binary || inBytes.Note != result.Note {
			t.Errorf("%.20q in bytes: %t, %q", content, inBytes.Binary, inBytes.Note)
		}
	}
}

func TestAShortPartOfATextIsNotBinary(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.file("utf8", strings.Repeat("\u65e5\u672c\u8a9e", 10_000))
	w.file("latin", "caf\xe9 one\n\xe9\xe8\nplain two, and more of it\n")
	for _, r := range []spec.File{
		{Path: "utf8", Offset: 1, Limit: 1, Unit: spec.UnitBytes}, {Path: "utf8", Offset: 1, Limit: 2, Unit: spec.UnitBytes},
		{Path: "utf8", Offset: 50_000, Limit: 4, Unit: spec.UnitBytes}, {Path: "latin", Offset: 3, Limit: 2, Unit: spec.UnitBytes},
		{Path: "latin", Offset: 2, Limit: 1},
	} {
		r.Operation = spec.OperationRead
		if out, result := w.must(r); result.Binary || result.Note != "" || out == "" {
			t.Errorf("%+v: %q, %+v", r, out, result)
		}
	}
}

func TestABinaryFileWithoutLinesIsDescribed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.rules.MaxOutputBytes = 64 << 10
	w.file("f", "first\n"+strings.Repeat("\x00", 1<<20))
	out, result := w.must(spec.File{Operation: spec.OperationRead, Path: "f", Offset: 2})
	isDescribed := result.Binary && strings.HasPrefix(result.Note, "is a binary file of 1048582 bytes")
	if !isDescribed || !result.Truncated || result.NextOffset != nil || len(out) != headBytes {
		t.Errorf("%d bytes, %+v", len(out), result)
	}
}
