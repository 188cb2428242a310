package files

import (
	"os"
	"testing"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

func TestAMoveMakesNoDirectories(t *testing.T) {
	w := newWorld(t)
	w.file("a", "x")
	w.refused(spec.File{Operation: spec.OperationMove, Path: "a", Destination: "new/a"}, reason.FileNotFound, "MakeDirectory")
	w.must(spec.File{Operation: spec.OperationMakeDirectory, Path: "new"})
	w.must(spec.File{Operation: spec.OperationMove, Path: "a", Destination: "new/a"})
}

func TestMoveOntoAnotherNameOfTheFile(t *testing.T) {
	w := newWorld(t)
	if err := os.Link(w.file("a", "x"), w.root+"/b"); err != nil {
		t.Fatal(err)
	}
	w.refused(spec.File{Operation: spec.OperationMove, Path: "a", Destination: "b"}, reason.FileExists, "overwrite")
	w.refused(spec.File{Operation: spec.OperationMove, Path: "a", Destination: "b", Overwrite: true}, reason.FileExists, "names of the same file")
	if w.content("a") != "x" || w.content("b") != "x" {
		t.Error("the content is gone")
	}
}
