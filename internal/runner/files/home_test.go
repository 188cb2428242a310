package files

import (
	"os"
	"testing"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

func TestATildeIsTheHomeDirectory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	home := w.dir("home/me")
	w.dir("work/~")
	at := func(r spec.File) spec.File {
		r.WorkingDir, r.Home = w.root+"/work", home
		return r
	}
	if _, result := w.must(at(spec.File{Operation: spec.OperationWrite, Path: "~/notes/a.txt", Content: []byte("x\n")})); result.Path != home+"/notes/a.txt" {
		t.Errorf("it is %s", result.Path)
	}
	if out, _ := w.must(at(spec.File{Operation: spec.OperationRead, Path: "~/notes/a.txt"})); out != "x\n" {
		t.Errorf("it reads %q", out)
	}
	w.must(at(spec.File{Operation: spec.OperationMove, Path: "~/notes/a.txt", Destination: "~/b.txt"}))
	if w.content("home/me/b.txt") != "x\n" {
		t.Error("the destination isn't in the home directory")
	}
	if out, _ := w.must(at(spec.File{Operation: spec.OperationList, Path: "~"})); len(entries(t, out)) != 2 {
		t.Errorf("~ has %s", out)
	}
	out, result := w.must(at(spec.File{Operation: spec.OperationGlob, Path: ".", Pattern: "~/*.txt"}))
	if got := found(t, out); len(got) != 1 || got[0] != "~/b.txt" || result.Path != home {
		t.Errorf("the glob finds %q in %s", got, result.Path)
	}
	var visited []string
	_, _, err := Visit(t.Context(), &w.rules, &spec.File{Path: "~/*.txt", WorkingDir: w.root, Home: home}, func(c *Candidate) error {
		visited = append(visited, c.Path)
		return nil
	})
	if err != nil || len(visited) != 1 || visited[0] != home+"/b.txt" {
		t.Errorf("%q is visited: %v", visited, err)
	}
	// A name that only begins like it is a name, and so is one behind another.
	w.must(at(spec.File{Operation: spec.OperationWrite, Path: "~x", Content: []byte("x")}))
	w.must(at(spec.File{Operation: spec.OperationWrite, Path: "./~/y", Content: []byte("x")}))
	if _, err := os.Stat(w.root + "/work/~/y"); err != nil {
		t.Error(err)
	}
	w.refused(spec.File{Operation: spec.OperationRead, Path: "~/a", WorkingDir: w.root}, reason.InvalidRequest, "HOME")
	w.refused(spec.File{Operation: spec.OperationWrite, Path: "~/a", Home: w.outside}, reason.PathNotAllowed, "leads to")
	w.checkOutside()
}

func TestAMissingWorkingDirectoryIsMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	repo := w.root + "/deep/repo"
	w.refused(spec.File{Operation: spec.OperationRead, Path: "a", WorkingDir: repo}, reason.FileNotFound, w.root+"/deep")
	if _, result := w.must(spec.File{Operation: spec.OperationMakeDirectory, Path: ".", WorkingDir: repo}); !result.Created || result.Path != repo {
		t.Errorf("it is %+v", result)
	}
	other := w.root + "/other"
	w.must(spec.File{Operation: spec.OperationWrite, Path: "d/a", Content: []byte("x"), WorkingDir: other})
	if w.content("other/d/a") != "x" {
		t.Error("a relative path isn't below it")
	}
}

func TestAnAllowedDirectoryThatIsMissingIsMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	missing := w.root + "/data/repo"
	w.rules = Rules{FileRules: spec.FileRules{ReadPaths: []string{missing}, WritePaths: []string{missing}}}
	w.refused(spec.File{Operation: spec.OperationList, Path: missing}, reason.FileNotFound, "doesn't exist")
	w.refused(spec.File{Operation: spec.OperationWrite, Path: missing, Content: []byte("x")}, reason.IsDirectory, "")
	if _, err := os.Stat(w.root + "/data"); !os.IsNotExist(err) {
		t.Errorf("what was refused left a directory: %v", err)
	}
	if _, result := w.must(spec.File{Operation: spec.OperationMakeDirectory, Path: missing}); !result.Created || result.Path != missing {
		t.Errorf("it is %+v", result)
	}
	if _, result := w.must(spec.File{Operation: spec.OperationMakeDirectory, Path: missing}); result.Created {
		t.Errorf("it was there: %+v", result)
	}
	// Nobody is led elsewhere by a link above it.
	w.link(w.outside, "link")
	led := w.root + "/link/x"
	w.rules = Rules{FileRules: spec.FileRules{WritePaths: []string{led}}}
	w.refused(spec.File{Operation: spec.OperationWrite, Path: led + "/a", Content: []byte("x")}, reason.PathNotAllowed, "symbolic link")
	w.checkOutside()
}
