package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

func TestDeleteSaysWhatItDeletedBeforeItFailed(t *testing.T) {
	w := newWorld(t)
	const depth = MaxDepth + 20
	for i := range depth {
		w.file("tree/"+strings.Repeat("d/", i)+"f", "")
	}
	_, result, err := w.do(spec.File{Operation: spec.OperationDelete, Path: "tree", Recursive: true})
	says := fmt.Sprintf("%d files and directories in it were deleted before", number(result.Matches))
	if reasonOf(err) != reason.NotSupported || number(result.Matches) == 0 || !strings.Contains(err.Error(), says) {
		t.Errorf("%+v, %v", result, err)
	}
	left := 0
	for i := range depth {
		if _, err := os.Lstat(w.root + "/tree/" + strings.Repeat("d/", i) + "f"); err == nil {
			left++
		}
	}
	if left != depth-number(result.Matches) || result.Path != w.root+"/tree" {
		t.Errorf("%d of %d files are left, %+v", left, depth, result)
	}
}

func TestDeleteSaysWhatItDeletedBeforeItsContextEnded(t *testing.T) {
	w := newWorld(t)
	const files = 2000
	for i := range files {
		w.file(fmt.Sprintf("many/%s%d", strings.Repeat("x", 60), i), "")
	}
	ctx := &contextFunc{Context: t.Context(), err: func() error {
		if all, err := os.ReadDir(w.root + "/many"); err != nil || len(all) < files {
			return context.Canceled
		}
		return nil
	}}
	r := &spec.File{Operation: spec.OperationDelete, Path: w.root + "/many", Recursive: true}
	_, result, err := Do(ctx, &w.rules, r)
	left, _ := os.ReadDir(w.root + "/many")
	if !errors.Is(err, context.Canceled) || number(result.Matches) == 0 || number(result.Matches) != files-len(left) {
		t.Errorf("%d are left: %+v, %v", len(left), result, err)
	}
}

// Whoever gives a checksum means a file, whatever has its name by now.
func TestAConditionalDeleteDeletesNoDirectory(t *testing.T) {
	w := newWorld(t)
	w.file("d/f", "text")
	w.file("f", "text")
	w.link("f", "link")
	sum := sumOf([]byte("text"))
	for _, recursive := range []bool{true, false} {
		w.refused(spec.File{Operation: spec.OperationDelete, Path: "d", Recursive: recursive, IfSHA256: &sum}, reason.IsDirectory, "checksum")
	}
	w.refused(spec.File{Operation: spec.OperationDelete, Path: "link", IfSHA256: &sum}, reason.PathNotAllowed, "regular files")
	if w.content("d/f") != "text" || w.content("link") != "text" {
		t.Error("something was changed")
	}
	w.must(spec.File{Operation: spec.OperationDelete, Path: "f", Recursive: true, IfSHA256: &sum})
}
