package files

import (
	"context"
	"errors"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/spec"
)

// TestGrepAsksItsContext ends the context after it was asked often.
func TestGrepAsksItsContext(t *testing.T) {
	const slow = "(?:a?){1000}(?:a?){1000}[äö]$"
	w := newWorld(t)
	for name, content := range map[string]string{
		"one long line":    strings.Repeat("a", 8<<10) + "é",
		"many short lines": strings.Repeat(strings.Repeat("a", 80)+"é\n", 300),
	} {
		w.file(name, content)
		asked := 0
		ctx := &contextFunc{Context: t.Context(), err: func() error {
			if asked++; asked > 20 {
				return context.Canceled
			}
			return nil
		}}
		r := &spec.File{Operation: spec.OperationGrep, Path: w.root + "/" + name, Pattern: slow}
		if _, _, err := Do(ctx, &w.rules, r); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v after %d questions", name, err, asked)
		}
	}
}

func TestLongLinesAreMatchedLikeShortOnes(t *testing.T) {
	w := newWorld(t)
	w.file("f", strings.Repeat("é", 4<<10)+"aaab\r\nnothing\n")
	out, _ := w.must(spec.File{Operation: spec.OperationGrep, Path: "f", Pattern: `(?:x?){1000}(?:y?){1000}a+b$`})
	if all := decode[Match](t, out); len(all) != 1 || all[0].Column != 8<<10+1 || !strings.HasSuffix(all[0].Line, "aaab") {
		t.Errorf("%+v", all)
	}
}
