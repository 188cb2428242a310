package files

import (
	"strings"
	"testing"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

func TestANameThatIsNearlyThereIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.rules.DeniedPaths = []string{"Secret\u00a0x"}
	for _, name := range []string{
		"caf\u00e9.txt", "re\u0301sume\u0301.txt", "\u1112\u1161\u11ab.txt", "Screenshot at 9.41\u202fAM.png", "a\u00a0b", "trailing ", "README.md", "Secret\u00a0x", "\u6587\u6863.txt",
		"dir\u00a0one/f",
	} {
		w.file(name, "x")
	}
	for asked, says := range map[string]string{
		"cafe\u0301.txt":            "caf\u00e9.txt",
		"r\u00e9sum\u00e9.txt":      `re\u0301sume\u0301.txt`,
		"\ud55c.txt":                `\u1112\u1161\u11ab.txt`,
		"Screenshot at 9.41 AM.png": `9.41\u202fAM.png`,
		"a b":                       `a\u00a0b`,
		"trailing":                  `trailing "`,
		"readme.md":                 "README.md",
		"dir one/f":                 `dir\u00a0one`,
	} {
		w.refused(spec.File{Operation: spec.OperationRead, Path: asked}, reason.FileNotFound, says+map[bool]string{true: `", whose`}[says[len(says)-1] != '"'])
		w.refused(spec.File{Operation: spec.OperationDelete, Path: asked}, reason.FileNotFound, "differs only in")
	}
	for _, asked := range []string{"Secret x", "other", "\u62a5\u544a.txt", "cafe.txt"} {
		_, _, err := w.do(spec.File{Operation: spec.OperationRead, Path: asked})
		if reasonOf(err) != reason.FileNotFound || err.Error()[len(err.Error())-len("is there."):] != "is there." {
			t.Errorf("%q: %v", asked, err)
		}
	}
}

func TestAGlobWithBracketsThatMatchesNothingSaysHowToEscapeThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.file("app/[id]/page.tsx", "export default 1\n")
	glob := func(pattern string) Result {
		_, result := w.must(spec.File{Operation: spec.OperationGlob, Path: ".", Pattern: pattern})
		return result
	}
	if got := glob("app/[id]/page.tsx"); number(got.Matches) != 0 || got.Note == "" {
		t.Errorf("it says %q", got.Note)
	}
	if got := glob(`app/\[id\]/page.tsx`); number(got.Matches) != 1 || got.Note != "" {
		t.Errorf("what it says to write finds %d: %q", number(got.Matches), got.Note)
	}
	for _, pattern := range []string{"app/[ix]/page.tsx", "nothing", "app/[[]id]/*"} {
		if got := glob(pattern); got.Note != "" {
			t.Errorf("%s: %q", pattern, got.Note)
		}
	}
	_, result := w.must(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: "export", Glob: "app/[id]/*.tsx"})
	if number(result.Matches) != 0 || result.Note == "" {
		t.Errorf("Grep says %q", result.Note)
	}
}

func TestASearchOfNothingSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.file("lib/a.py", "import os\n")
	w.file("one.txt", "two\n")
	w.link("lib", "lib64")
	for _, tc := range []struct{ glob, says string }{
		{"*.rb", "No file was searched"}, {"lib", "No file was searched"}, {"*.py,*.txt", "No file was searched"}, {"*.py", ""}, {"", ""},
		{"lib64/*.py", "/lib64\" is a symbolic link"},
	} {
		_, result := w.must(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: "nothing", Glob: tc.glob})
		if !strings.Contains(result.Note, tc.says) || tc.says == "" && result.Note != "" {
			t.Errorf("a Grep of %q says %q", tc.glob, result.Note)
		}
	}
	for _, path := range []string{".", "one.txt"} {
		for _, isLiteral := range []bool{false, true} {
			_, result := w.must(spec.File{Operation: spec.OperationGrep, Path: path, Pattern: `two\|three`, Literal: isLiteral})
			if strings.Contains(result.Note, "write a|b") == isLiteral {
				t.Errorf("a Grep of %s, literal: %t, says %q", path, isLiteral, result.Note)
			}
		}
	}
	w.link("one.txt", "two.md")
	for glob, says := range map[string]string{"*.md": "", "*.rb": "No file was searched"} {
		if _, result := w.must(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: "nothing", Glob: glob}); (says == "") != (result.Note == "") {
			t.Errorf("a Grep of %q says %q", glob, result.Note)
		}
	}
	for pattern, says := range map[string]string{
		"lib64/*": "/lib64\" is a symbolic link", "lib64/*/x": "/lib64\" is a symbolic link", "lib65/*": "", "*.rb": "",
	} {
		_, result := w.must(spec.File{Operation: spec.OperationGlob, Path: ".", Pattern: pattern})
		if !strings.Contains(result.Note, says) || says == "" && result.Note != "" {
			t.Errorf("a Glob of %q says %q", pattern, result.Note)
		}
	}
}
