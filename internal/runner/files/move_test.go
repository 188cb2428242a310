package files

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

func TestMoveOntoAnotherNameOfTheFile(t *testing.T) {
	w := newWorld(t)
	if err := os.Link(w.file("a", "x"), w.root+"/b"); err != nil {
		t.Fatal(err)
	}
	w.refused(spec.File{Operation: spec.OperationMove, Path: "a", Destination: "b"}, reason.FileExists, "overwrite")
	w.must(spec.File{Operation: spec.OperationMove, Path: "a", Destination: "b", Overwrite: true})
	if _, err := os.Lstat(w.root + "/a"); !errors.Is(err, os.ErrNotExist) || w.content("b") != "x" {
		t.Errorf("the source is left (%v), or the content is gone", err)
	}
}

// TestMoveNeverRemovesTheLastName has names that change or are one, when the lock is taken.
func TestMoveNeverRemovesTheLastName(t *testing.T) {
	w := newWorld(t)
	path := w.file("a", "x")
	for _, name := range []string{"b", "A"} {
		if err := os.Link(path, w.root+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	c, from := w.opened("a", how{})
	_, to := w.opened("b", how{})
	_, upper := w.opened("A", how{})
	// Of two names that differ in case only, it isn't known whether they are one.
	if same, err := isSecondName(from, upper); same || err != nil {
		t.Errorf("%v, %v", same, err)
	}
	if err := os.Remove(w.root + "/b"); err != nil {
		t.Fatal(err)
	}
	c.req.Overwrite = true
	if err := c.rename(from, to); err != nil && err != unix.ENOENT || w.content("b") != "x" {
		t.Error(err)
	}
}
