package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

const runnersSecret = "the-runner's-own-value"

// withRunnerPath makes a directory of the runner's own, next to a link to it.
func withRunnerPath(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.file(".own/call/KEY", runnersSecret)
	w.file("note", "plain\n")
	w.link(".own", "link")
	w.rules.RunnerPaths = []string{w.root + "/.own"}
	return w
}

func TestNoRequestReachesWhatIsTheRunnersOwn(t *testing.T) {
	t.Parallel()
	w := withRunnerPath(t)
	for _, path := range []string{".own", ".own/call", ".own/call/KEY", "link", "link/call/KEY", "./x/../.own/call/KEY"} {
		for _, op := range []spec.Operation{spec.OperationRead, spec.OperationList, spec.OperationGlob, spec.OperationGrep, spec.OperationStat, spec.OperationWrite, spec.OperationEdit, spec.OperationDelete, spec.OperationMakeDirectory, spec.OperationMove} {
			if strings.HasPrefix(path, "./x") || path == "link" && (op == spec.OperationStat || op == spec.OperationDelete || op == spec.OperationMove) {
				continue // The directory isn't there, or the operation is on the link itself.
			}
			w.refused(spec.File{Operation: op, Path: path, Pattern: "*", Literal: true, OldString: "a", Destination: "taken"}, reason.PathNotAllowed, "runner's own")
		}
	}
	w.refused(spec.File{Operation: spec.OperationMove, Path: "note", Destination: ".own/note"}, reason.PathNotAllowed, "runner's own")
	if got := w.content(".own/call/KEY"); got != runnersSecret {
		t.Errorf("the file has %q", got)
	}
}

func TestAWalkLeavesOutWhatIsTheRunnersOwn(t *testing.T) {
	t.Parallel()
	w := withRunnerPath(t)
	for _, r := range []spec.File{
		{Operation: spec.OperationGrep, Path: ".", Pattern: "value"},
		{Operation: spec.OperationGlob, Path: ".", Pattern: "**/KEY"},
		{Operation: spec.OperationList, Path: ".", Recursive: true},
	} {
		out, result := w.must(r)
		if strings.Contains(out, "KEY") || result.Skipped != (Skipped{}) {
			t.Errorf("%s: %q, %+v", r.Operation, out, result.Skipped)
		}
	}
	var packed bytes.Buffer
	if err := Pack(t.Context(), &w.rules, &spec.File{Path: w.root}, &packed); err != nil {
		t.Fatal(err)
	}
	for list := tar.NewReader(&packed); ; {
		h, err := list.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || strings.HasPrefix(h.Name, ".own") {
			t.Fatalf("the archive has %+v, %v", h, err)
		}
	}
}

func TestADirectoryAboveTheRunnersOwnIsNeitherMovedNorDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.file("tmp/.own/call/KEY", runnersSecret)
	w.rules.RunnerPaths = []string{w.root + "/tmp/.own"}
	w.refused(spec.File{Operation: spec.OperationMove, Path: "tmp", Destination: "taken"}, reason.PathNotAllowed, "below it")
	w.refused(spec.File{Operation: spec.OperationDelete, Path: "tmp", Recursive: true}, reason.PathNotAllowed, "below it")
	w.file("from/.own/call", "planted")
	w.rules.RunnerPaths = []string{w.root + "/to/.own"}
	w.refused(spec.File{Operation: spec.OperationMove, Path: "from", Destination: "to"}, reason.PathNotAllowed, "below it")
	if _, err := os.Stat(w.root + "/tmp/.own/call/KEY"); err != nil {
		t.Error(err)
	}
}
