package files

import (
	"os"
	"testing"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

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

func TestAMoveSaysWhichOfTheTwoIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.file("a", "x")
	w.refused(spec.File{Operation: spec.OperationMove, Path: "none", Destination: "b"}, reason.FileNotFound, "look with List or Glob for what is there.")
	w.refused(spec.File{Operation: spec.OperationMove, Path: "a", Destination: "none/b"}, reason.FileNotFound, "A Move makes no directories.")
}
