package files

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/patterns"
	"toolcall.dev/operator/internal/spec"
)

func TestPatternsAreBounded(t *testing.T) {
	t.Parallel()
	for pattern, ok := range map[string]bool{
		`(\w+)=(\d{1,3})(\.\d{1,3}){3}`:        true,
		"x{1000}":                              true,
		`[\pL\pN_]{1,200}`:                     true,
		strings.Repeat("a", patterns.MaxBytes): true,
		strings.Repeat("(a|b)", 500):           true,
		strings.Repeat("(x{1000}){1}", 20):     false,
		strings.Repeat(`(\pL?){1000}`, 200):    false,
		strings.Repeat("(?:a?){1000}", 680):    false,
		strings.Repeat(`\pL`, 2000):            false,
		strings.Repeat("(?:a*){0,1000}", 10):   false,
		strings.Repeat("(?:a|b|c){1000,}", 10): false,
	} {
		p, err := patterns.Compile(pattern, false)
		if want := map[bool]string{false: reason.InvalidPattern}[ok]; reasonOf(err) != want {
			t.Errorf("%.40s: %v", pattern, err)
		}
		if ok && p.Expr != nil && p.Expr.NumSubexp() > 0 {
			t.Errorf("%.40s: %d groups capture", pattern, p.Expr.NumSubexp())
		}
	}
}

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
		if _, err := Do(ctx, &w.rules, r, io.Discard); !errors.Is(err, context.Canceled) {
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
