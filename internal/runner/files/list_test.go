package files

import (
	"testing"

	"toolcall.dev/operator/internal/spec"
)

func TestAGlobWithBracketsThatMatchesNothingSaysHowToEscapeThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.file("app/[id]/page.tsx", "export default 1\n")
	glob := func(pattern string) Result {
		_, result := w.must(spec.File{Operation: spec.OperationGlob, Path: ".", Pattern: pattern})
		return result
	}
	if got := glob("app/[id]/page.tsx"); got.Matches != 0 || got.Note == "" {
		t.Errorf("it says %q", got.Note)
	}
	if got := glob(`app/\[id\]/page.tsx`); got.Matches != 1 || got.Note != "" {
		t.Errorf("what it says to write finds %d: %q", got.Matches, got.Note)
	}
	for _, pattern := range []string{"app/[ix]/page.tsx", "nothing", "app/[[]id]/*"} {
		if got := glob(pattern); got.Note != "" {
			t.Errorf("%s: %q", pattern, got.Note)
		}
	}
	_, result := w.must(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: "export", Glob: "app/[id]/*.tsx"})
	if result.Matches != 0 || result.Note == "" {
		t.Errorf("Grep says %q", result.Note)
	}
}
