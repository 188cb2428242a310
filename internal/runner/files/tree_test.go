package files

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/redact"
	"toolcall.dev/operator/internal/spec"
)

func TestList(t *testing.T) {
	w := newWorld(t)
	w.file("b", "four")
	w.file("a/f", "")
	w.link("../out\xff", "a/l")
	w.file("new\nline", "")
	w.file("odd\xff", "")
	out, result := w.must(spec.File{Operation: spec.OperationList, Path: "."})
	if got := entries(t, out); !slices.Equal(got, []string{"a", "b", "new\nline", "odd\ufffd"}) || number(result.Matches) != 4 {
		t.Errorf("%q, %+v", got, result)
	}
	all := decode[Entry](t, out)
	if all[0].Type != TypeDirectory || all[1].Size != 4 || all[1].Mode != "0644" || all[1].PathBase64 != "" ||
		all[3].PathBase64 != base64.StdEncoding.EncodeToString([]byte("odd\xff")) {
		t.Errorf("%+v", all)
	}
	out, _ = w.must(spec.File{Operation: spec.OperationList, Path: ".", Recursive: true})
	if got := entries(t, out); !slices.Equal(got, []string{"a", "a/f", "a/l", "b", "new\nline", "odd\ufffd"}) {
		t.Errorf("%q", got)
	}
	if l := decode[Entry](t, out)[2]; l.Type != TypeLink || l.Target != "../out\ufffd" ||
		l.TargetBase64 != base64.StdEncoding.EncodeToString([]byte("../out\xff")) {
		t.Errorf("%+v", l)
	}
	out, result = w.must(spec.File{Operation: spec.OperationList, Path: ".", Recursive: true, MaxResults: 2})
	if got := entries(t, out); !slices.Equal(got, []string{"a", "a/f"}) || !result.Truncated {
		t.Errorf("%q, %+v", got, result)
	}
	_, result = w.must(spec.File{Operation: spec.OperationList, Path: ".", MaxResults: 4})
	if result.Truncated {
		t.Error("all results, and they are called truncated")
	}
	w.refused(spec.File{Operation: spec.OperationList, Path: "b"}, reason.NotDirectory, "b")
	w.refused(spec.File{Operation: spec.OperationList, Path: ".", MaxResults: -1}, reason.InvalidRequest, "maxResults")
	out, result = w.must(spec.File{Operation: spec.OperationList, Path: w.root + "/a/", MaxResults: 1 << 40})
	if number(result.Matches) != 2 || result.Path != w.root+"/a" {
		t.Errorf("%q, %+v", out, result)
	}
}

func TestResultsAreInTheOrderOfTheirPathsBytes(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a/x", "a/b/z", "a/b c", "a-b/y", "a.txt", "a0", "ab/x"} {
		w.file(name, "needle\n")
	}
	all := []string{"a", "a-b", "a-b/y", "a.txt", "a/b", "a/b c", "a/b/z", "a/x", "a0", "ab", "ab/x"}
	for _, limit := range []int{0, 5} {
		want := all
		if limit > 0 {
			want = all[:limit]
		}
		out, result := w.must(spec.File{Operation: spec.OperationGlob, Path: ".", Pattern: "**", MaxResults: limit})
		if got := found(t, out); !slices.Equal(got, want) || result.Truncated != (limit > 0) {
			t.Errorf("Glob: %q, %+v", got, result)
		}
		out, result = w.must(spec.File{Operation: spec.OperationList, Path: ".", Recursive: true, MaxResults: limit})
		if got := entries(t, out); !slices.Equal(got, want) || result.Truncated != (limit > 0) {
			t.Errorf("List: %q, %+v", got, result)
		}
	}
	out, _ := w.must(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: "needle"})
	got := paths(decode[Match](t, out), func(m Match) string { return m.Path })
	if !slices.Equal(got, []string{"a-b/y", "a.txt", "a/b c", "a/b/z", "a/x", "a0", "ab/x"}) {
		t.Errorf("Grep: %q", got)
	}
}

func TestStat(t *testing.T) {
	w := newWorld(t)
	w.file("d/f", "text")
	out, result := w.must(spec.File{Operation: spec.OperationStat, Path: "d/../d/f"})
	if e := decode[Entry](t, out)[0]; e.Path != w.root+"/d/f" || e.Type != TypeFile || e.Size != 4 || *result.Bytes != 4 || e.ModTime.IsZero() {
		t.Errorf("%+v, %+v", e, result)
	}
	// The checksum is there for what may be compared.
	if result.SHA256 != sumOf([]byte("text")) {
		t.Errorf("the checksum is %s", result.SHA256)
	}
	w.rules.MaxReadBytes = 3
	if _, result := w.must(spec.File{Operation: spec.OperationStat, Path: "d/f"}); result.SHA256 != "" {
		t.Errorf("the checksum of a large file is %s", result.SHA256)
	}
	out, _ = w.must(spec.File{Operation: spec.OperationStat, Path: "."})
	if e := decode[Entry](t, out)[0]; e.Path != w.root || e.Type != TypeDirectory {
		t.Errorf("%+v", e)
	}
}

func TestGlob(t *testing.T) {
	w := newWorld(t)
	for _, f := range []string{"a.go", "b.txt", "src/c.go", "src/deep/d.go", "src/deep/.hidden.go", ".git/config.go", "src/.git/e.go", "x/y"} {
		w.file(f, "")
	}
	w.link("../src", "x/link")
	w.file("src/.toolcall-0123456789abcdef.tmp", "")
	for pattern, want := range map[string][]string{
		"*":                    {"a.go", "b.txt", "src", "x"},
		"**/*.go":              {"a.go", "src/c.go", "src/deep/.hidden.go", "src/deep/d.go"},
		"**":                   {"a.go", "b.txt", "src", "src/c.go", "src/deep", "src/deep/.hidden.go", "src/deep/d.go", "x", "x/link", "x/y"},
		"src/**":               {"src", "src/c.go", "src/deep", "src/deep/.hidden.go", "src/deep/d.go"},
		"src/*":                {"src/c.go", "src/deep"},
		"src/**/d.go":          {"src/deep/d.go"},
		"./*.go":               {"a.go"},
		"./src/*.go":           {"src/c.go"},
		"{a,src/c}.go":         {"a.go", "src/c.go"},
		"[ab].*":               {"a.go", "b.txt"},
		"[!a].*":               {"b.txt"},
		"?.go":                 {"a.go"},
		`\a.go`:                {"a.go"},
		"x/link":               {"x/link"},
		"x/link/*":             nil,
		"none/**":              nil,
		"src/deep/{d,x}.go":    {"src/deep/d.go"},
		"src/{deep/*,c.*}":     {"src/c.go", "src/deep/.hidden.go", "src/deep/d.go"},
		"{**/d.go,*.txt}":      {"b.txt", "src/deep/d.go"},
		"src[/]c.go":           nil,
		"s[a-z][!x]/deep/d.g?": {"src/deep/d.go"},
	} {
		out, result := w.must(spec.File{Operation: spec.OperationGlob, Path: ".", Pattern: pattern})
		if got := found(t, out); !slices.Equal(got, want) || number(result.Matches) != len(want) || result.Truncated {
			t.Errorf("%s: %q, %+v, want %q", pattern, got, result, want)
		}
	}
	out, result := w.must(spec.File{Operation: spec.OperationGlob, Path: ".", Pattern: "**", MaxResults: 3})
	if got := found(t, out); !slices.Equal(got, []string{"a.go", "b.txt", "src"}) || !result.Truncated {
		t.Errorf("%q, %+v", got, result)
	}
	for _, pattern := range []string{
		"", "/a", "a//b", "a/", "../*", "././a", "a/./b", "a/../b", "[", "[]", "[z-a]", "{", "}", `\`, "\xff", strings.Repeat("{", 9) + strings.Repeat("}", 9),
		strings.Repeat("a", 1<<20), strings.Repeat("[", 1<<20),
	} {
		w.refused(spec.File{Operation: spec.OperationGlob, Path: ".", Pattern: pattern}, reason.InvalidPattern, "")
	}
	w.refused(spec.File{Operation: spec.OperationGlob, Path: "a.go", Pattern: "*"}, reason.NotDirectory, "")
	// Backtracking would take ages.
	w.file(strings.Repeat("a", 250), "")
	w.must(spec.File{Operation: spec.OperationGlob, Path: ".", Pattern: strings.Repeat("*a", 200) + "b"})
	w.must(spec.File{Operation: spec.OperationGlob, Path: ".", Pattern: strings.Repeat("{,a}", 200) + "b"})
}

func TestGrep(t *testing.T) {
	w := newWorld(t)
	w.file("a.go", "one\ntwo needle\nthree\nneedle four")
	w.file("sub/b.txt", "Needle\r\nneedle.\r\n")
	w.file("sub/c.go", "nothing\n")
	w.file("binary", "needle\n\x00")
	w.file(".git/f", "needle")
	w.file("sub/odd\xff", "a needle \xff\n")
	w.file("empty", "")
	type hit struct {
		path   string
		line   int64
		column int64
		text   string
	}
	tests := []struct {
		name, pattern, glob, path string
		literal                   bool
		want                      []hit
	}{
		{name: "a word", pattern: "needle", want: []hit{{"a.go", 2, 5, "two needle"}, {"a.go", 4, 1, "needle four"},
			{"sub/b.txt", 2, 1, "needle."}, {"sub/odd\ufffd", 1, 3, "a needle \ufffd"}}},
		{name: "narrowed by name", pattern: "needle", glob: "*.txt", want: []hit{{"sub/b.txt", 2, 1, "needle."}}},
		{name: "narrowed by path", pattern: "needle", glob: "sub/b*", want: []hit{{"sub/b.txt", 2, 1, "needle."}}},
		{name: "text", pattern: "needle.", literal: true, want: []hit{{"sub/b.txt", 2, 1, "needle."}}},
		{name: "any case", pattern: "(?i)^needle", want: []hit{{"a.go", 4, 1, "needle four"}, {"sub/b.txt", 1, 1, "Needle"}, {"sub/b.txt", 2, 1, "needle."}}},
		{name: "the end before CR LF", pattern: `dle\.$`, want: []hit{{"sub/b.txt", 2, 4, "needle."}}},
		{name: "either", pattern: "^one$|^nothing$", want: []hit{{"a.go", 1, 1, "one"}, {"sub/c.go", 1, 1, "nothing"}}},
		{name: "without a literal", pattern: `^\w{5}$`, want: []hit{{"a.go", 3, 1, "three"}}},
		{name: "never over lines", pattern: `one\s+two`},
		{name: "one file", pattern: "t", path: "a.go", want: []hit{{"a.go", 2, 1, "two needle"}, {"a.go", 3, 1, "three"}}},
		{name: "a line end", pattern: "\r", want: []hit{{"sub/b.txt", 1, 7, "Needle"}, {"sub/b.txt", 2, 8, "needle."}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.path == "" {
				test.path = "."
			}
			out, result := w.must(spec.File{Operation: spec.OperationGrep, Path: test.path, Pattern: test.pattern, Glob: test.glob, Literal: test.literal})
			var got []hit
			for _, m := range decode[Match](t, out) {
				got = append(got, hit{m.Path, m.LineNumber, m.Column, m.Line})
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(hit{})); diff != "" || number(result.Matches) != len(test.want) {
				t.Errorf("%+v\n%s", result, diff)
			}
			if binary := result.Skipped.Binary; test.glob == "" && test.path == "." && binary != 1 {
				t.Errorf("%d binary files", binary)
			}
		})
	}
	out, _ := w.must(spec.File{Operation: spec.OperationGrep, Path: "sub", Pattern: `a needle`})
	if m := decode[Match](t, out)[0]; m.LineBase64 != base64.StdEncoding.EncodeToString([]byte("a needle \xff")) || m.PathBase64 == "" {
		t.Errorf("%+v", m)
	}
	for _, pattern := range []string{"", "(", `\8`, strings.Repeat("(x{1000}){1000}", 100), strings.Repeat("a", 1<<20), "(?<n"} {
		w.refused(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: pattern}, reason.InvalidPattern, "")
	}
	w.refused(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: "a\nb", Literal: true}, reason.InvalidPattern, "line feed")
	w.refused(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: "a", Glob: "["}, reason.InvalidPattern, "glob")
	w.refused(spec.File{Operation: spec.OperationGrep, Path: "a.go/", Pattern: "a"}, reason.NotDirectory, "")
}

func TestGrepCutsLongLines(t *testing.T) {
	w := newWorld(t)
	w.file("a", strings.Repeat("é", 1000)+"needle"+strings.Repeat("é", 1000)+"\nneedle\n")
	w.file("b", "needle"+strings.Repeat("x", searchBytes)+"needle\nx\nneedle\n"+strings.Repeat("y", 2*searchBytes)+"needle")
	out, result := w.must(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: "needle"})
	all := decode[Match](t, out)
	if len(all) != 4 || result.Skipped.LongLines != 2 {
		t.Fatalf("%+v, %+v", all, result)
	}
	for _, m := range all {
		if !strings.Contains(m.Line, "needle") || strings.Contains(m.Line, "\ufffd") || len(m.Line) > MaxLineBytes || m.Cut == (m.Line == "needle") {
			t.Errorf("%+v", m)
		}
	}
	if a, b := all[0], all[3]; a.Column != 2001 || !a.Cut || b.LineNumber != 3 || b.Cut {
		t.Errorf("%+v, %+v", a, b)
	}
}

func TestGrepStopsAtItsLimit(t *testing.T) {
	w := newWorld(t)
	for i := range 40 {
		w.file(fmt.Sprintf("d%02d/f", i), strings.Repeat("needle\n", 100))
	}
	for _, limit := range []int{0, 1, 100, 999, 1000, 5000} {
		out, result := w.must(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: "needle", MaxResults: limit})
		want := limit
		if want == 0 || want > MaxResults {
			want = MaxResults
		}
		all := decode[Match](t, out)
		if len(all) != want || number(result.Matches) != want || !result.Truncated {
			t.Errorf("%d: %d, %+v", limit, len(all), result)
		}
		for i, m := range all {
			if m.Path != fmt.Sprintf("d%02d/f", i/100) || m.LineNumber != int64(i%100+1) {
				t.Fatalf("%d: %+v", i, m)
			}
		}
	}
	_, result := w.must(spec.File{Operation: spec.OperationGrep, Path: "d00", Pattern: "needle", MaxResults: 100})
	if result.Truncated {
		t.Error("all results, and they are called truncated")
	}
	_, result = w.must(spec.File{Operation: spec.OperationGrep, Path: "d00/f", Pattern: "needle", MaxResults: 99})
	if !result.Truncated {
		t.Error("99 of 100 results aren't called truncated")
	}
}

// TestWalksEndWithTheirContext cancels them in the middle.
func TestWalksEndWithTheirContext(t *testing.T) {
	w := newWorld(t)
	for i := range 300 {
		w.file(fmt.Sprintf("d%d/f", i), strings.Repeat("needle\n", 50))
	}
	for _, r := range []spec.File{
		{Operation: spec.OperationList, Recursive: true}, {Operation: spec.OperationGlob, Pattern: "**"}, {Operation: spec.OperationGrep, Pattern: "needle"},
	} {
		r.Path = w.root
		ctx, cancel := context.WithCancel(t.Context())
		rules := w.rules
		rules.Hidden = func([]byte) []redact.Span { cancel(); return nil }
		if _, _, err := Do(ctx, &rules, &r); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", r.Operation, err)
		}
		if _, _, err := Do(ctx, &w.rules, &r); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", r.Operation, err)
		}
	}
}

// deepTree makes directories below one another, deeper than a path can name.
func deepTree(t *testing.T, root string, depth int) {
	t.Helper()
	at, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range depth {
		if err := unix.Mkdirat(at, "deepdeepdeepdeepd", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "deepdeepdeepdeepd", unix.O_PATH|unix.O_DIRECTORY, 0)
		_ = unix.Close(at)
		if at = next; err != nil {
			t.Fatal(err)
		}
	}
	_ = unix.Close(at)
}

func TestDeepTrees(t *testing.T) {
	w := newWorld(t)
	deepTree(t, w.dir("below"), MaxDepth+50)
	for _, r := range []spec.File{
		{Operation: spec.OperationList, Recursive: true}, {Operation: spec.OperationGlob, Pattern: "**/deep*"}, {Operation: spec.OperationGrep, Pattern: "x"},
	} {
		r.Path = "."
		if _, result := w.must(r); result.Skipped.Deep != 1 {
			t.Errorf("%s: %+v", r.Operation, result)
		}
	}
	w.refused(spec.File{Operation: spec.OperationDelete, Path: "below", Recursive: true}, reason.NotSupported, "deep")
	w.rules.DeniedPaths = []string{"*.pem"}
	w.refused(spec.File{Operation: spec.OperationDelete, Path: "below", Recursive: true}, reason.PathNotAllowed, "deep")
	w.refused(spec.File{Operation: spec.OperationMove, Path: "below", Destination: "new"}, reason.PathNotAllowed, "deep")
}

func TestNamesThatAreHeldAreBounded(t *testing.T) {
	w := newWorld(t)
	for i := range 100 {
		w.file(fmt.Sprintf("d%02d/f", i), "needle")
	}
	_, p := w.opened(".", how{})
	rules, err := w.rules.compile(false)
	if err != nil {
		t.Fatal(err)
	}
	// A directory is held twice.
	walk := walker{c: &call{ctx: t.Context(), rules: rules}, held: maxHeldBytes - 10*(2*entryBytes+7)}
	visited := 0
	err = walk.walk(p, func(string, int) bool { return true }, func(string, *directory, dirent) error { visited++; return nil })
	// Leaving a directory gives its share back.
	if err != nil || !walk.truncated || visited < 11 || visited > 30 {
		t.Errorf("%d entries, %+v, %v", visited, walk, err)
	}
}

func TestMove(t *testing.T) {
	w := newWorld(t)
	w.file("f", "1")
	w.file("g", "2")
	w.file("d/x", "3")
	_, result := w.must(spec.File{Operation: spec.OperationMove, Path: "f", Destination: "d/f"})
	if w.content("d/f") != "1" || !result.Created || result.Path != w.root+"/d/f" || result.Bytes != nil {
		t.Errorf("%+v", result)
	}
	w.refused(spec.File{Operation: spec.OperationMove, Path: "g", Destination: "d/f"}, reason.FileExists, "overwrite")
	_, result = w.must(spec.File{Operation: spec.OperationMove, Path: "g", Destination: "d/f", Overwrite: true})
	if w.content("d/f") != "2" || result.Created {
		t.Errorf("%+v", result)
	}
	w.must(spec.File{Operation: spec.OperationMove, Path: "d/", Destination: "e/"})
	w.dir("empty")
	for _, overwrite := range []bool{false, true} {
		w.refused(spec.File{Operation: spec.OperationMove, Path: "e/f", Destination: "empty", Overwrite: overwrite}, reason.IsDirectory, "new name")
		w.refused(spec.File{Operation: spec.OperationMove, Path: "e/f", Destination: "empty/", Overwrite: overwrite}, reason.IsDirectory, "new name")
		w.refused(spec.File{Operation: spec.OperationMove, Path: "e", Destination: "empty", Overwrite: overwrite}, reason.IsDirectory, "new name")
		w.refused(spec.File{Operation: spec.OperationMove, Path: "e", Destination: "e/f/..", Overwrite: overwrite}, reason.NotDirectory, "")
		w.refused(spec.File{Operation: spec.OperationMove, Path: "e", Destination: "e/new", Overwrite: overwrite}, reason.InvalidRequest, "itself")
		w.refused(spec.File{Operation: spec.OperationMove, Path: "e", Destination: "./e", Overwrite: overwrite}, reason.InvalidRequest, "itself")
		w.refused(spec.File{Operation: spec.OperationMove, Path: "missing", Destination: "new", Overwrite: overwrite}, reason.FileNotFound, "missing")
		w.refused(spec.File{Operation: spec.OperationMove, Path: "e", Destination: "no/new", Overwrite: overwrite}, reason.FileNotFound, "no")
		w.refused(spec.File{Operation: spec.OperationMove, Path: "e", Overwrite: overwrite}, reason.InvalidRequest, "destination")
		w.refused(spec.File{Operation: spec.OperationMove, Path: "e/f", Destination: "new/", Overwrite: overwrite}, reason.NotDirectory, "slash")
	}
	w.refused(spec.File{Operation: spec.OperationMove, Path: "empty", Destination: "e/f", Overwrite: true}, reason.FileExists, "directory")
	if w.content("e/f") != "2" || w.content("e/x") != "3" {
		t.Error("something was lost")
	}
}

// TestMoveIsExclusive makes the destination after the look at it.
func TestMoveIsExclusive(t *testing.T) {
	w := newWorld(t)
	w.file("f", "1")
	_, from := w.opened("f", how{})
	_, to := w.opened("g", how{missing: true})
	w.file("g", "2")
	if err := rename(from.dir, from.name, to.dir, to.name, true); err != unix.EEXIST || w.content("g") != "2" {
		t.Errorf("%v, %q", err, w.content("g"))
	}
}

func TestDelete(t *testing.T) {
	w := newWorld(t)
	w.file("d/e/f", "")
	w.file("d/g", "")
	w.link(w.outside, "d/out")
	w.link("missing", "d/dangling")
	w.file("f", "")
	w.dir("empty")
	_, result := w.must(spec.File{Operation: spec.OperationDelete, Path: "f"})
	if number(result.Matches) != 1 {
		t.Errorf("%+v", result)
	}
	w.refused(spec.File{Operation: spec.OperationDelete, Path: "f"}, reason.FileNotFound, "")
	w.refused(spec.File{Operation: spec.OperationDelete, Path: "d"}, reason.IsDirectory, "the file action Delete with recursive")
	w.refused(spec.File{Operation: spec.OperationDelete, Path: "empty"}, reason.IsDirectory, "recursive")
	w.refused(spec.File{Operation: spec.OperationDelete, Path: "d/g/"}, reason.NotDirectory, "slash")
	_, result = w.must(spec.File{Operation: spec.OperationDelete, Path: "d", Recursive: true})
	if _, err := os.Lstat(w.root + "/d"); !errors.Is(err, os.ErrNotExist) || number(result.Matches) != 6 {
		t.Errorf("%v, %+v", err, result)
	}
	w.checkOutside()
	for i := range 3000 {
		w.file(filepath.Join("many", strings.Repeat("x", 60)+fmt.Sprint(i)), "")
	}
	if _, result = w.must(spec.File{Operation: spec.OperationDelete, Path: "many", Recursive: true}); number(result.Matches) != 3001 {
		t.Errorf("%+v", result)
	}
}
