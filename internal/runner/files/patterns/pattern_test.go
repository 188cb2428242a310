package patterns

import (
	"errors"
	"strings"
	"testing"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
)

func TestPatternsAreBounded(t *testing.T) {
	t.Parallel()
	for pattern, ok := range map[string]bool{
		`(\w+)=(\d{1,3})(\.\d{1,3}){3}`:        true,
		"x{1000}":                              true,
		`[\pL\pN_]{1,200}`:                     true,
		strings.Repeat("a", MaxBytes):          true,
		strings.Repeat("(a|b)", 500):           true,
		strings.Repeat("(x{1000}){1}", 20):     false,
		strings.Repeat(`(\pL?){1000}`, 200):    false,
		strings.Repeat("(?:a?){1000}", 680):    false,
		strings.Repeat(`\pL`, 2000):            false,
		strings.Repeat("(?:a*){0,1000}", 10):   false,
		strings.Repeat("(?:a|b|c){1000,}", 10): false,
	} {
		p, err := Compile(pattern, false)
		got, refused := "", (*sys.Error)(nil)
		if errors.As(err, &refused) {
			got = refused.Reason
		}
		if want := map[bool]string{false: reason.InvalidPattern}[ok]; got != want {
			t.Errorf("%.40s: %v", pattern, err)
		}
		if ok && p.Expr != nil && p.Expr.NumSubexp() > 0 {
			t.Errorf("%.40s: %d groups capture", pattern, p.Expr.NumSubexp())
		}
	}
}

func TestAnExpressionThatNeedsALineFeedIsRefused(t *testing.T) {
	t.Parallel()
	for pattern, ok := range map[string]bool{
		"import os\nimport sys": false, `import os\nimport sys`: false, `a.*\n\s*b`: false, `(?:a\r?\n)+`: false, `(a\n){2}`: false,
		`a\nb|c\n`: false,
		`a|b\n`:    true, `a(\n|$)`: true, `a\n?`: true, `(a\n)*b`: true, `[^\n]+`: true, `a\s+b`: true, `\\n`: true,
	} {
		_, err := Compile(pattern, false)
		refused := (*sys.Error)(nil)
		if isRefused := errors.As(err, &refused) && refused.Reason == reason.InvalidPattern && strings.Contains(refused.Message, "line feed"); isRefused == ok {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}
