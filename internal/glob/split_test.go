package glob_test

import (
	"testing"

	"toolcall.dev/operator/internal/glob"
)

func TestAGlobIsTakenApartWhereItsFirstWildcardIs(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string][2]string{
		"plot.png":                {".", "plot.png"},
		"out/plot.png":            {"out", "plot.png"},
		"out/deep/*.png":          {"out/deep", "*.png"},
		"**/*.png":                {".", "**/*.png"},
		"a/b{c/d,e}/f":            {"a", "b{c/d,e}/f"},
		`a/\*/b`:                  {"a", `\*/b`},
		"/workspace/out/**":       {"/workspace/out", "**"},
		"/plot.png":               {"/", "plot.png"},
		"/*/x":                    {"/", "*/x"},
		"a/..b/c":                 {"a/..b", "c"},
		"/tmp/{a,b}/[0-9].{x,y}z": {"/tmp", "{a,b}/[0-9].{x,y}z"},
	} {
		if dir, rest, err := glob.Split(pattern); err != nil || dir != want[0] || rest != want[1] {
			t.Errorf("%s: %q, %q, %v", pattern, dir, rest, err)
		}
	}
	for _, pattern := range []string{
		"", "/", "//a", "a//b", "a/", "./a", "a/./b", "../a", "a/../b", "/..", "a/{..,b}/c", "[", "{", "a\xff", "a/{,b}/c",
	} {
		if dir, rest, err := glob.Split(pattern); err == nil {
			t.Errorf("%q: %q, %q", pattern, dir, rest)
		}
	}
}
