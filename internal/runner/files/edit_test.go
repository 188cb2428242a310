package files

import (
	"strings"
	"testing"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

func TestAnEditKeepsLineEndsAndTheByteOrderMark(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tc := range []struct{ name, content, old, with, want string }{
		{"lines of a file with CRLF", "a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", "x\r\ny\r\nz\r\nc\r\n"},
		{"a line becomes two", "a\r\nb\r\n", "a", "a\nA", "a\r\nA\r\nb\r\n"},
		{"the last line has no end", "a\r\nb", "b", "b\nB", "a\r\nb\r\nB"},
		{"the new text has CRLF itself", "a\r\nb\r\n", "a\nb", "x\r\ny", "x\r\ny\r\n"},
		{"both kinds are compared as they are", "a\r\nb\nc\r\n", "b\nc\r\n", "B\n", "a\r\nB\n"},
		{"line ends are what is changed", "a\r\nb\r\n", "\r\n", "\n", "a\nb\n"},
		{"LF stays", "a\nb\n", "a\nb", "x\ny", "x\ny\n"},
		{"a carriage return in a line stays", "a\r\r\nb\r\n", "b", "c", "a\r\r\nc\r\n"},
		{"the mark isn't part of the line", "\ufeffa\nb\n", "a\n", "x\n", "\ufeffx\nb\n"},
		{"the mark and CRLF", "\ufeffa\r\nb\r\n", "a\nb", "x\ny", "\ufeffx\r\ny\r\n"},
		{"the mark is what is changed", "\ufeffa\n", "\ufeffa", "a", "a\n"},
	} {
		w.file("f", tc.content)
		_, result := w.must(spec.File{Operation: spec.OperationEdit, Path: "f", OldString: tc.old, NewString: tc.with, ReplaceAll: tc.old == "\r\n"})
		if got := w.content("f"); got != tc.want || *result.Bytes != int64(len(tc.want)) || result.SHA256 != sumOf([]byte(tc.want)) {
			t.Errorf("%s: %q, want %q, %+v", tc.name, got, tc.want, result)
		}
	}
	w.file("f", "a\r\na\r\n")
	w.must(spec.File{Operation: spec.OperationEdit, Path: "f", OldString: "a\n", NewString: "b\nb\n", ReplaceAll: true})
	if got := w.content("f"); got != "b\r\nb\r\nb\r\nb\r\n" {
		t.Errorf("all of them: %q", got)
	}
	w.file("f", "a\nb\n")
	w.refused(spec.File{Operation: spec.OperationEdit, Path: "f", OldString: "a\r\nb", NewString: "x"}, reason.EditNotFound, `lines end with "\n"`)
}

func TestAnEditOfALineThatIsNotUTF8SaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.file("latin", "first\ncaf\xe9 one\nplain two\n")
	for _, old := range []string{"caf\ufffd one", "caf\u00e9 one", "caf\u00e9", "first\ncaf\ufffd one\n"} {
		w.refused(spec.File{Operation: spec.OperationEdit, Path: "latin", OldString: old, NewString: "cafe one"}, reason.EditNotFound, "line 2 has bytes that aren't UTF-8")
	}
	w.file("later", "# na\u00efve\ncaf\xe9 one\nlast\n")
	for _, old := range []string{"# na\u00efve\ncaf\ufffd one", "# na\u00efve\ncaf\ufffd one\nlast", "# na\u00efve\ncaf\ufffd one\nlast\n"} {
		w.refused(spec.File{Operation: spec.OperationEdit, Path: "later", OldString: old, NewString: "x"}, reason.EditNotFound, "line 2 has bytes that aren't UTF-8")
	}
	w.file("both", "caf\xe9 au lait\n\u65e5\u672c\n\xe9\n")
	for _, old := range []string{"\u65e5\u672c\u8a9e", "\u65e5\u672c\u8a9e\n\u65e5", "\u65e5 \u8a9e"} {
		w.refused(spec.File{Operation: spec.OperationEdit, Path: "both", OldString: old, NewString: "x"}, reason.EditNotFound, "compare it with what Read returns")
	}
	w.refused(spec.File{Operation: spec.OperationEdit, Path: "both", OldString: "\u65e5\u672c\n\ufffd\n", NewString: "x"}, reason.EditNotFound, "line 3 has bytes")
	w.refused(spec.File{Operation: spec.OperationEdit, Path: "latin", OldString: "plain three", NewString: "x"}, reason.EditNotFound, "compare it with what Read returns")
	w.must(spec.File{Operation: spec.OperationEdit, Path: "latin", OldString: "plain two", NewString: "plain 2"})
	if got := w.content("latin"); got != "first\ncaf\xe9 one\nplain 2\n" {
		t.Errorf("other lines can be edited: %q", got)
	}
}

func TestAnEditThatFindsNothingSaysWhy(t *testing.T) {
	t.Parallel()
	w := showing(t, "[redacted: TOKEN]", "token="+shownSecret+"\n")
	for _, tc := range []struct{ name, content, old, says string }{
		{"UTF-16", "\xff\xfeh\x00i\x00", "hi", "the file is text in UTF-16, of 6 bytes"},
		{"an image", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "IDAT", "the file is a binary file of 16 bytes"},
		{"a mark", "token=" + shownSecret + "\n", "token=[redacted: TOKEN]", "stands for another text in the file"},
		{"a mark that is cut", "token=" + shownSecret + "\n", "token=[redacted]", "stands for another text in the file"},
		{"decomposed accents", "cafe\u0301 one\n", "caf\u00e9 one", "accents that are encoded otherwise"},
		{"composed accents", "caf\u00e9 one\n", "cafe\u0301 one", "accents that are encoded otherwise"},
		{"both kinds of line ends", "a\r\nb\nc\n", "a\nb", "some lines of the file end with"},
		{"spaces for a tab", "def f():\n\treturn 1\n", "def f():\n    return 1", "from line 1 on, the file has it with other white space"},
		{"a space for a no-break space", "one\ntwo\u00a0three\n", "two three", "from line 2 on, the file has it with other white space"},
		{"a blank at the end", "one\ntwo\n", "two \n", "from line 2 on, the file has it with other white space"},
		{"a last line without a line end", "one\ntwo", "two\n", "from line 2 on, the file has it with other white space"},
		{"a line before the first", "one\ntwo\n", "\n\tone", "from line 1 on, the file has it with other white space"},
		{"typographic quotes and a dash", "one\nsay \u201chello\u201d \u2014 ok\n", `say "hello" - ok`, "from line 2 on, the file has it with other white space, quotes or dashes"},
		{"escapes of a line end and a tab", "if x {\n\treturn\n", `if x {\n\treturn`, `oldString has escapes such as \n`},
		{"a line end for its escape", `printf("a\n");` + "\n", "printf(\"a\n\");", `the file has escapes such as \n`},
		{"an empty file", "", "one", "the file is empty; use Write to fill it"},
		{"nothing but white space", "one\ntwo\n", "\t \n", "compare it with what Read returns"},
		{"another accent", "caf\u00e9 one\n", "caf\u00e8 one", "compare it with what Read returns"},
	} {
		w.file("f", tc.content)
		w.refused(spec.File{Operation: spec.OperationEdit, Path: "f", OldString: tc.old, NewString: "x"}, reason.EditNotFound, tc.says)
	}
}

func TestSeveralEditsAreMadeAllOrNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const content = "one\ntwo\ntwo\nthree\n"
	w.file("f", content)
	edit := func(edits ...spec.Replacement) spec.File {
		return spec.File{Operation: spec.OperationEdit, Path: "f", Edits: edits}
	}
	w.refused(edit(spec.Replacement{OldString: "one", NewString: "1"}, spec.Replacement{OldString: "four", NewString: "4"}), reason.EditNotFound, "edits[1]: The oldString was found 0 times")
	w.refused(edit(spec.Replacement{OldString: "one", NewString: "1"}, spec.Replacement{OldString: "two", NewString: "2"}), reason.EditAmbiguous, "edits[1]")
	w.refused(edit(spec.Replacement{OldString: "one", NewString: "1"}, spec.Replacement{OldString: "", NewString: "2"}), reason.InvalidRequest, "edits[1]")
	both := edit(spec.Replacement{OldString: "one", NewString: "1"})
	both.OldString = "two"
	w.refused(both, reason.InvalidRequest, "one form")
	w.refused(edit(make([]spec.Replacement, MaxEdits+1)...), reason.InvalidRequest, "at most")
	if w.content("f") != content {
		t.Fatalf("a refused edit has changed the file: %q", w.content("f"))
	}
	// Each sees what the one before made.
	_, result := w.must(edit(
		spec.Replacement{OldString: "one", NewString: "uno"}, spec.Replacement{OldString: "two", NewString: "2", ReplaceAll: true}, spec.Replacement{OldString: "uno\n2", NewString: "1\n2"},
	))
	if got := w.content("f"); got != "1\n2\n2\nthree\n" || number(result.Replaced) != 4 {
		t.Errorf("%q, %+v", got, result)
	}
	w.rules.MaxWriteBytes = 20
	w.refused(edit(spec.Replacement{OldString: "1", NewString: strings.Repeat("x", 30)}, spec.Replacement{OldString: "three", NewString: ""}), reason.FileTooLarge, "edits[0]")
}
