package files

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/spec"
)

func TestWhatGitIgnoresIsLeftOutIfAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, content := range map[string]string{
		"repo/.git/HEAD":      "ref: refs/heads/main\n",
		"repo/.gitignore":     "# builds\n\n*.log\n!keep.log\nnode_modules/\n/dist\nsrc/gen/**\ntmp\\ x\n*.{a,b}\ntrailing   \nfile-or-dir/\n[Tt]emp?\n**/deep/out\r\nIcon\r\r\n",
		"repo/src/.gitignore": "!debug.log\nlocal.txt\n",
		".gitignore":          "*.go\n",
		"repo/a.go":           "x", "repo/a.log": "x", "repo/keep.log": "x", "repo/src/debug.log": "x", "repo/src/other.log": "x", "repo/src/local.txt": "x",
		"repo/local.txt": "x", "repo/node_modules/m/index.js": "x", "repo/src/node_modules/n.js": "x", "repo/dist/a.js": "x", "repo/src/dist/a.js": "x",
		"repo/src/gen/x/y.go": "x", "repo/tmp x": "x", "repo/c.{a,b}": "x", "repo/c.a": "x", "repo/trailing": "x", "repo/file-or-dir": "x", "repo/sub/file-or-dir/f": "x",
		"repo/temp1": "x", "repo/temp": "x", "repo/sub/deep/out/f": "x", "repo/Icon/index.js": "x",
	} {
		w.file(name, content)
	}
	find := func(path string, ask bool) []string {
		out, _ := w.must(spec.File{Operation: spec.OperationGrep, Path: path, Pattern: "^x$", RespectGitIgnore: ask})
		got := paths(decode[Match](t, out), func(m Match) string { return m.Path })
		out, _ = w.must(spec.File{Operation: spec.OperationGlob, Path: path, Pattern: "**", RespectGitIgnore: ask})
		var files []string
		for _, f := range decode[Found](t, out) {
			if f.Type == TypeFile && !strings.HasSuffix(f.Path, ignoreName) {
				files = append(files, f.Path)
			}
		}
		if !slices.Equal(got, files) {
			t.Errorf("Grep searches %q, Glob finds %q", got, files)
		}
		return got
	}
	want := []string{"Icon/index.js", "a.go", "c.a", "file-or-dir", "keep.log", "local.txt", "src/debug.log", "src/dist/a.js", "temp"}
	if got := find("repo", true); !slices.Equal(got, want) {
		t.Errorf("it finds %q, want %q", got, want)
	}
	if got := find("repo", false); len(got) != 22 {
		t.Errorf("without it: %d, %q", len(got), got)
	}
	// The files above a directory count too.
	if got := find("repo/src", true); !slices.Equal(got, []string{"debug.log", "dist/a.js"}) {
		t.Errorf("below: %q", got)
	}
	out, _ := w.must(spec.File{Operation: spec.OperationList, Path: "repo/src", RespectGitIgnore: true})
	if got := entries(t, out); !slices.Equal(got, []string{".gitignore", "debug.log", "dist", "gen"}) {
		t.Errorf("List: %q", got)
	}
	compareWithGit(t, w.root+"/repo", want)
}

// What a walk holds of a stranger's repository is bounded: it goes on without the rest.
func TestPatternsBeyondTheBoundAreNotRespected(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("none\n", maxIgnorePatterns/2)
	for name, tc := range map[string]struct{ outer, inner string }{
		"patterns": {many + "a\n", many + "b\n"},
		"bytes":    {"a\n#" + strings.Repeat("x", maxIgnoreBytes/2) + "\n", "#" + strings.Repeat("x", maxIgnoreBytes/2) + "\nb\n"},
		// The last byte that is read is the first one of the pattern.
		"a part of a pattern": {"a\n", "#" + strings.Repeat("x", maxIgnoreBytes-len("a\n#\nb")) + "\nbc\n"},
	} {
		w := newWorld(t)
		for file, content := range map[string]string{
			".gitignore": tc.outer, "inner/.gitignore": tc.inner, "a": "x", "inner/a": "x", "inner/b": "x", "next/.gitignore": "b\n", "next/b": "x",
		} {
			w.file(file, content)
		}
		out, _ := w.must(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: "^x$", RespectGitIgnore: true})
		if got := paths(decode[Match](t, out), func(m Match) string { return m.Path }); !slices.Equal(got, []string{"inner/b"}) {
			t.Errorf("%s: it finds %q", name, got)
		}
	}
}

// compareWithGit has git itself say which files it doesn't ignore.
func compareWithGit(t *testing.T, repo string, want []string) {
	t.Helper()
	git := func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = repo, append(cmd.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Skipf("git: %v: %s", err, out)
		}
		return string(out)
	}
	git("init", "-q", ".")
	var got []string
	for _, name := range strings.Split(strings.TrimSuffix(git("ls-files", "-z", "--others", "--exclude-standard"), "\x00"), "\x00") {
		if !strings.HasSuffix(name, ignoreName) {
			got = append(got, name)
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("git has %q, want %q", got, want)
	}
}
