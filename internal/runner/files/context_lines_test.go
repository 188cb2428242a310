package files

import (
	"slices"
	"strings"
	"testing"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/redact"
	"toolcall.dev/operator/internal/spec"
)

func TestGrepReturnsTheLinesAroundAMatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.file("f", "\ufeff1\r\n2\r\nmatch\r\n4\r\n5\r\n"+strings.Repeat("x", 600)+"\nmatch")
	out, _ := w.must(spec.File{Operation: spec.OperationGrep, Path: "f", Pattern: "^match$", ContextLines: 3})
	got := decode[Match](t, out)
	if len(got) != 2 || !slices.Equal(got[0].Before, []string{"1", "2"}) || !slices.Equal(got[0].After, []string{"4", "5", strings.Repeat("x", MaxLineBytes)}) ||
		!slices.Equal(got[1].Before, []string{"4", "5", strings.Repeat("x", MaxLineBytes)}) || got[1].After != nil {
		t.Errorf("it returns %+v", got)
	}
	if out, _ := w.must(spec.File{Operation: spec.OperationGrep, Path: "f", Pattern: "^1$"}); len(decode[Match](t, out)) != 1 || strings.Contains(out, "after") {
		t.Errorf("the first line, without context: %s", out)
	}
	// Also where a match is at the border of what is read at once.
	line := strings.Repeat("y", 63) + "\n"
	w.file("d/large", strings.Repeat(line, searchBytes/64-1)+"before\nmatch\nafter\n"+strings.Repeat(line, searchBytes/64))
	out, _ = w.must(spec.File{Operation: spec.OperationGrep, Path: "d", Pattern: "match", ContextLines: 1})
	if got := decode[Match](t, out); len(got) != 1 || !slices.Equal(got[0].Before, []string{"before"}) || !slices.Equal(got[0].After, []string{"after"}) {
		t.Errorf("at a border: %+v", got)
	}
	w.refused(spec.File{Operation: spec.OperationGrep, Path: "f", Pattern: "x", ContextLines: MaxContextLines + 1}, reason.InvalidRequest, "contextLines")
}

func TestTheLinesAroundAMatchShowNoValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const value = "correct-horse\nbattery-staple"
	matcher, err := redact.For([]redact.Value{{Name: "KEY", Value: []byte(value)}})
	if err != nil {
		t.Fatal(err)
	}
	w.rules.Hidden = matcher.Spans
	w.rules.HiddenAround = int64(len(value)) * HiddenForm
	w.file("f", "a\nb\nmatch\ncorrect-horse\nbattery-staple\nz\n")
	for context := 1; context <= 3; context++ {
		out, _ := w.must(spec.File{Operation: spec.OperationGrep, Path: "f", Pattern: "match", ContextLines: context})
		if strings.Contains(out, "horse") || strings.Contains(out, "staple") || !strings.Contains(out, `"b"`) {
			t.Errorf("with %d lines: %s", context, out)
		}
	}
}
