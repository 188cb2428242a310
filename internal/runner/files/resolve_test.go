package files

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

func TestPathsThatStayInside(t *testing.T) {
	w := newWorld(t)
	w.file("a/b/f", "inside")
	w.link("b/f", "a/relative")
	w.link(w.root+"/a/b", "absolute")
	w.link("../../../root/a", "a/b/over-the-top")
	w.link(w.root, "to-root")
	w.link("to-root/absolute/f", "chain")
	w.link("absolute/", "with-slash")
	for _, path := range []string{
		"a/b/f", w.root + "/a/b/f", "./a//b/./f", "a/../a/b/f", "a/relative", "absolute/f", "to-root/a/b/f", "chain", "with-slash/f",
		"absolute/../b/f", "../root/a/b/f", "a/b/over-the-top/b/f", "../../../../../../../.." + w.root + "/a/b/f",
	} {
		if out, result, err := w.do(spec.File{Operation: spec.OperationRead, Path: path}); out != "inside" || result.Path != w.root+"/a/b/f" {
			t.Errorf("%s: %q, %+v, %v", path, out, result, err)
		}
	}
}

func TestPathsThatLeadOut(t *testing.T) {
	w := newWorld(t)
	w.file("a/f", "inside")
	w.link("../outside", "out")
	w.link(w.outside+"/canary", "canary")
	w.link("/", "slash")
	w.link("/proc/self/root", "proc-root")
	w.link("/proc/self/cwd", "proc-cwd")
	w.link("/dev/fd/0", "fd")
	w.link("out/new", "dangling")
	w.link("..", "a/up")
	w.link("a/up/../outside", "mixed")
	w.link("../root-not", "sibling")
	for _, path := range []string{
		"../outside/canary", "out/canary", "canary", "slash" + w.outside + "/canary", "slash/etc/passwd", "proc-root/etc/passwd",
		"proc-cwd/x", "fd", w.outside + "/canary", "/etc/passwd", "/", "..", "a/../..", "a/up/../outside/canary", "mixed/canary", "/proc/self/environ",
		"sibling", w.root + "-not", w.root + "/../outside/canary", "dangling",
		strings.Repeat("../", 1000) + "etc/passwd", "a/" + strings.Repeat("../", 3) + "etc/passwd",
	} {
		for _, r := range []spec.File{
			{Operation: spec.OperationRead}, {Operation: spec.OperationWrite, Content: []byte("x")}, {Operation: spec.OperationEdit, OldString: "C"},
			{Operation: spec.OperationList}, {Operation: spec.OperationGlob, Pattern: "**"}, {Operation: spec.OperationGrep, Pattern: "C"},
			{Operation: spec.OperationMakeDirectory}, {Operation: spec.OperationStat, Path: "/."},
		} {
			r.Path = path + r.Path
			w.refused(r, reason.PathNotAllowed, w.root)
		}
		want := reason.PathNotAllowed
		if st, err := os.Lstat(filepath.Join(w.root, path)); err == nil && st.Mode()&os.ModeSymlink != 0 && !filepath.IsAbs(path) {
			want = reason.NotDirectory
		}
		w.refused(spec.File{Operation: spec.OperationDelete, Path: path + "/.", Recursive: true}, want, w.root)
		w.refused(spec.File{Operation: spec.OperationMove, Path: path + "/.", Destination: "a/new"}, want, w.root)
		w.refused(spec.File{Operation: spec.OperationMove, Path: "a/f", Destination: path + "/new"}, reason.PathNotAllowed, w.root)
	}
	w.checkOutside()
}

// TestLinksThemselves has the operations that don't follow the last link.
func TestLinksThemselves(t *testing.T) {
	w := newWorld(t)
	w.link(w.outside+"/canary", "out")
	out, _ := w.must(spec.File{Operation: spec.OperationStat, Path: "out"})
	if e := decode[Entry](t, out)[0]; e.Type != TypeLink || e.Target != w.outside+"/canary" || e.Path != w.root+"/out" {
		t.Errorf("%+v", e)
	}
	w.must(spec.File{Operation: spec.OperationMove, Path: "out", Destination: "moved"})
	w.must(spec.File{Operation: spec.OperationDelete, Path: "moved"})
	w.checkOutside()
}

func TestLinksWithASlash(t *testing.T) {
	w := newWorld(t)
	w.file("target/f", "x")
	w.dir("dir")
	w.link("target", "link")
	w.link("new", "dangling")
	for _, path := range []string{"link/", "link//", "link/.", "dangling/"} {
		w.refused(spec.File{Operation: spec.OperationDelete, Path: path, Recursive: true}, reason.NotDirectory, "slash")
		w.refused(spec.File{Operation: spec.OperationMove, Path: path, Destination: "elsewhere"}, reason.NotDirectory, "slash")
		w.refused(spec.File{Operation: spec.OperationMove, Path: "dir", Destination: path, Overwrite: true}, reason.NotDirectory, "slash")
	}
	out, _ := w.must(spec.File{Operation: spec.OperationStat, Path: "link/"})
	if e := decode[Entry](t, out)[0]; e.Type != TypeDirectory || e.Path != w.root+"/target" {
		t.Errorf("%+v", e)
	}
	if all, err := os.ReadDir(w.root); err != nil || len(all) != 4 || w.content("target/f") != "x" {
		t.Errorf("%v, %v", all, err)
	}
	w.must(spec.File{Operation: spec.OperationDelete, Path: "link/f"})
	w.must(spec.File{Operation: spec.OperationMove, Path: "link", Destination: "elsewhere"})
}

func TestPathsThatAreNotRight(t *testing.T) {
	w := newWorld(t)
	w.file("f", "text")
	w.dir("d")
	w.link("loop", "loop")
	w.link("b", "a")
	w.link("a", "b")
	w.link("missing", "dangling")
	for i := range maxLinks + 1 {
		w.link(fmt.Sprintf("chain%d", i+1), fmt.Sprintf("chain%d", i))
	}
	w.file(fmt.Sprintf("chain%d", maxLinks+1), "end")
	w.link(strings.Repeat("d/../", 600)+"bomb", "bomb")
	tests := []struct {
		path   string
		reason string
		says   string
	}{
		{"", reason.InvalidRequest, "empty"},
		{"a\x00b", reason.InvalidRequest, "NUL"},
		{strings.Repeat("x", 256), reason.InvalidRequest, "255"},
		{strings.Repeat("x/", 2048) + "x", reason.InvalidRequest, "4096"},
		{"loop", reason.InvalidRequest, "symbolic links"},
		{"a", reason.InvalidRequest, "symbolic links"},
		{"chain0", reason.InvalidRequest, "symbolic links"},
		{"bomb", reason.InvalidRequest, "too many names"},
		{"missing", reason.FileNotFound, "List"},
		{"missing/f", reason.FileNotFound, "missing"},
		{"missing/../f", reason.FileNotFound, "missing"},
		{"dangling", reason.FileNotFound, "missing"},
		{"f/x", reason.NotDirectory, "f"},
		{"f/..", reason.NotDirectory, "f"},
		{"f/", reason.NotDirectory, "f"},
		{"f/.", reason.NotDirectory, "f"},
		{"d", reason.IsDirectory, "List"},
		{".", reason.IsDirectory, "List"},
		{"d/..", reason.IsDirectory, "List"},
	}
	for _, test := range tests {
		w.refused(spec.File{Operation: spec.OperationRead, Path: test.path}, test.reason, test.says)
	}
	if out, _ := w.must(spec.File{Operation: spec.OperationRead, Path: "chain1"}); out != "end" {
		t.Errorf("forty links: %q", out)
	}
	w.refused(spec.File{Operation: spec.OperationRead, Path: "f", WorkingDir: "relative"}, reason.InvalidRequest, "absolute")
	w.refused(spec.File{Operation: "Chmod", Path: "f"}, reason.InvalidRequest, "MakeDirectory")
}

func TestSeveralAllowedDirectories(t *testing.T) {
	w := newWorld(t)
	w.rules = Rules{FileRules: spec.FileRules{
		ReadPaths:  []string{w.root + "/one", w.root + "/two/deep", w.root + "/missing", w.root + "/linked"},
		WritePaths: []string{w.root + "/two/deep/write/"},
	}}
	w.file("one/f", "1")
	w.file("two/deep/write/f", "2")
	w.file("two/not", "3")
	w.link("../two/deep/write/f", "one/across")
	w.link("../two/not", "one/not")
	w.link("one", "linked")
	for path, want := range map[string]string{
		"one/f": "1", "two/deep/write/f": "2", "one/across": "2", "one/../two/deep/write/f": "2", "two/../one/f": "1",
	} {
		if out, _, err := w.do(spec.File{Operation: spec.OperationRead, Path: path}); out != want {
			t.Errorf("%s: %q, %v", path, out, err)
		}
	}
	for _, path := range []string{"two/not", "one/not", "two", ".", "onex", "two/deeper"} {
		w.refused(spec.File{Operation: spec.OperationRead, Path: path}, reason.PathNotAllowed, "readPaths")
	}
	w.refused(spec.File{Operation: spec.OperationRead, Path: "missing/f"}, reason.FileNotFound, "doesn't exist")
	w.refused(spec.File{Operation: spec.OperationRead, Path: "linked/f"}, reason.PathNotAllowed, "symbolic link")
	w.refused(spec.File{Operation: spec.OperationWrite, Path: "one/f"}, reason.PathNotAllowed, "writePaths")
	w.refused(spec.File{Operation: spec.OperationMove, Path: "one/f", Destination: "two/deep/write/g"}, reason.PathNotAllowed, "writePaths")
	w.refused(spec.File{Operation: spec.OperationMove, Path: "two/deep/write/f", Destination: "one/g"}, reason.PathNotAllowed, "writePaths")
	w.refused(spec.File{Operation: spec.OperationWrite, Path: "one/../two/deep/write/g"}, reason.PathNotAllowed, "writePaths")
	w.must(spec.File{Operation: spec.OperationWrite, Path: "two/deep/write/g", Content: []byte("x")})
	w.rules.ReadPaths = nil
	w.refused(spec.File{Operation: spec.OperationRead, Path: "one/f"}, reason.PathNotAllowed, "allow nothing")
}

func TestAllowedDirectoriesStayWhereTheyAre(t *testing.T) {
	w := newWorld(t)
	w.rules = Rules{FileRules: spec.FileRules{ReadPaths: []string{w.root, w.root + "/a/read"}, WritePaths: []string{w.root, w.root + "/a/b/write"}}}
	w.dir("a/b/write/x")
	w.dir("a/read")
	w.dir("free")
	for _, path := range []string{".", w.root, w.root + "/", "a/..", "a", "a/b", "a/b/write", "a/b/write/x/..", "a/read", "a/read/"} {
		w.refused(spec.File{Operation: spec.OperationDelete, Path: path, Recursive: true}, reason.PathNotAllowed, "allowed director")
		w.refused(spec.File{Operation: spec.OperationMove, Path: path, Destination: "free/new"}, reason.PathNotAllowed, "allowed director")
		w.refused(spec.File{Operation: spec.OperationMove, Path: "free", Destination: path, Overwrite: true}, reason.PathNotAllowed, "allowed director")
	}
	w.refused(spec.File{Operation: spec.OperationDelete, Path: "/", Recursive: true}, reason.PathNotAllowed, "")
	w.refused(spec.File{Operation: spec.OperationWrite, Path: "."}, reason.IsDirectory, "")
	w.must(spec.File{Operation: spec.OperationDelete, Path: "a/b/write/x", Recursive: true})
}

func TestRulesThatCanNotBeApplied(t *testing.T) {
	w := newWorld(t)
	for _, rules := range []spec.FileRules{
		{ReadPaths: []string{"relative"}}, {ReadPaths: []string{""}}, {ReadPaths: []string{"/a/../b"}}, {WritePaths: []string{"/a//b"}},
		{WritePaths: []string{"/a\x00"}}, {DeniedPaths: []string{"["}}, {DeniedPaths: []string{""}},
		{DeniedPaths: []string{"/"}}, {DeniedPaths: []string{"a{b"}}, {DeniedPaths: []string{"\xff"}},
	} {
		rules.ReadPaths = append([]string{w.root}, rules.ReadPaths...)
		w.rules = Rules{FileRules: rules}
		w.refused(spec.File{Operation: spec.OperationList, Path: "."}, reason.PathNotAllowed, "correct the policy")
	}
}

func TestDeniedPaths(t *testing.T) {
	w := newWorld(t)
	w.rules.DeniedPaths = []string{"**/.env", "*.pem", w.root + "/secret/", w.root + "/a/*/private/**", "é"}
	denied := []string{
		".env", "x/.env", "x/y/.ENV", "key.pem", "x/Key.PEM", "secret/f", "SECRET/f", "secret/deep/er", "a/b/private/f", "x/É",
		".env/below",
	}
	for _, name := range denied[:len(denied)-1] {
		w.file(name, canary)
	}
	allowed := []string{"env", "x/.environment", "x/secret/f", "a/private/f", "a/b/c/private/f", "pem"}
	for _, name := range allowed {
		w.file(name, "fine")
	}
	w.link("../secret/f", "x/innocent")
	w.link("../secret", "x/innocent-dir")
	w.link("../pem", "x/bad.pem")
	for _, name := range append(denied, "x/innocent", "x/innocent-dir/f", "x/bad.pem", "secret", "secret/../pem", "x/../.env", "secret/missing",
		"./secret//f", "x/innocent-dir/../pem") {
		w.refused(spec.File{Operation: spec.OperationRead, Path: name}, reason.PathNotAllowed, "deniedPaths")
		w.refused(spec.File{Operation: spec.OperationWrite, Path: name}, reason.PathNotAllowed, "deniedPaths")
		w.refused(spec.File{Operation: spec.OperationMakeDirectory, Path: name + "/new"}, reason.PathNotAllowed, "deniedPaths")
		w.refused(spec.File{Operation: spec.OperationGrep, Path: name, Pattern: "x"}, reason.PathNotAllowed, "deniedPaths")
		w.refused(spec.File{Operation: spec.OperationMove, Path: "pem", Destination: name + "/new"}, reason.PathNotAllowed, "deniedPaths")
	}
	for _, name := range allowed {
		w.must(spec.File{Operation: spec.OperationRead, Path: name})
	}
	for _, r := range []spec.File{
		{Operation: spec.OperationGrep, Pattern: "CANARY|fine"}, {Operation: spec.OperationGlob, Pattern: "**"},
		{Operation: spec.OperationList, Recursive: true},
	} {
		r.Path = "."
		out, result := w.must(r)
		for _, bad := range []string{"CANARY", ".env\"", ".pem", "secret/deep", "private/f\",\"lineNumber\":2"} {
			if strings.Contains(strings.ToLower(out), strings.ToLower(bad)) && bad != ".pem" || strings.Contains(out, "CANARY") {
				t.Errorf("%s shows %q:\n%s", r.Operation, bad, out)
			}
		}
		if result.Skipped.Denied == 0 {
			t.Errorf("%s: %+v", r.Operation, result)
		}
	}
}

// TestDeniedPathsCanNotBeMovedOrDeletedWithTheirParents would make what is denied readable, or remove it.
func TestDeniedPathsCanNotBeMovedOrDeletedWithTheirParents(t *testing.T) {
	w := newWorld(t)
	w.rules.DeniedPaths = []string{w.root + "/a/b/secret", w.root + "/new/config"}
	w.file("a/b/secret/f", canary)
	w.file("a/b/f", "fine")
	w.file("c/config", "fine")
	w.refused(spec.File{Operation: spec.OperationMove, Path: "a", Destination: "z"}, reason.PathNotAllowed, "deniedPaths")
	w.refused(spec.File{Operation: spec.OperationMove, Path: "a/b", Destination: "a/z"}, reason.PathNotAllowed, "deniedPaths")
	w.refused(spec.File{Operation: spec.OperationMove, Path: "c", Destination: "new"}, reason.PathNotAllowed, "deniedPaths")
	w.refused(spec.File{Operation: spec.OperationDelete, Path: "a", Recursive: true}, reason.PathNotAllowed, "deniedPaths")
	if w.content("a/b/f") != "fine" || w.content("a/b/secret/f") != canary {
		t.Error("something was deleted")
	}
	w.must(spec.File{Operation: spec.OperationMove, Path: "c", Destination: "d"})
}

func TestKernelFileSystemsAreRefused(t *testing.T) {
	rules := &Rules{FileRules: spec.FileRules{ReadPaths: []string{"/"}, WritePaths: []string{"/proc", "/sys"}}}
	for _, r := range []spec.File{
		{Operation: spec.OperationRead, Path: "/proc/self/environ"}, {Operation: spec.OperationRead, Path: "/proc/1/status"},
		{Operation: spec.OperationList, Path: "/proc"}, {Operation: spec.OperationGlob, Path: "/proc/self", Pattern: "*"},
		{Operation: spec.OperationRead, Path: "/sys/kernel/uevent_seqnum"}, {Operation: spec.OperationStat, Path: "/proc/self/exe"},
		{Operation: spec.OperationWrite, Path: "/proc/self/comm", Content: []byte("x")},
		{Operation: spec.OperationRead, Path: "/proc/self/root/etc/passwd"},
	} {
		if _, _, err := Do(t.Context(), rules, &r); reasonOf(err) != reason.PathNotAllowed {
			t.Errorf("%s %s: %v", r.Operation, r.Path, err)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self", &st); err != nil {
		t.Skip("there is no /proc")
	}
	_, result, err := Do(t.Context(), rules, &spec.File{Operation: spec.OperationGlob, Path: "/", Pattern: "proc/*"})
	if err != nil || number(result.Matches) != 0 || result.Skipped.Denied != 1 {
		t.Errorf("%+v, %v", result, err)
	}
}
