package collect

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

func TestMain(m *testing.M) {
	unix.Umask(0o022)
	goleak.VerifyTestMain(m)
}

// world is a directory that a call writes to, and one outside of it that nothing may be kept of.
type world struct {
	t             testing.TB
	root, outside string
	request       Request
}

const canary = "CANARY: nobody may read this\n"

func newWorld(t testing.TB) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, root: dir + "/root", outside: dir + "/outside"}
	for _, d := range []string{w.root, w.outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(w.outside+"/canary", []byte(canary), 0o644); err != nil {
		t.Fatal(err)
	}
	w.request = Request{
		WorkingDir: w.root, Collect: spec.Collect{WritePaths: []string{w.root}, MaxCount: result.MaxArtifacts, MaxBytes: 1 << 20, MaxTotalBytes: 8 << 20}, Dir: t.TempDir(),
		Shown: func(path string) string { return path },
	}
	return w
}

func (w *world) file(name, content string) {
	w.t.Helper()
	path := filepath.Join(w.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) link(target, name string) {
	w.t.Helper()
	if err := os.Symlink(target, filepath.Join(w.root, name)); err != nil {
		w.t.Fatal(err)
	}
}

// do collects, and checks that what is kept is what is said.
func (w *world) do(globs ...string) *result.Artifacts {
	w.t.Helper()
	return w.doWith(context.Background(), globs...)
}

func (w *world) doWith(ctx context.Context, globs ...string) *result.Artifacts {
	w.t.Helper()
	r := w.request
	r.Globs = globs
	files, got := Do(ctx, &r)
	defer files.Drop()
	o := result.Outcome{Reason: result.Completed, Started: true, ExitCode: result.Exit(0), Artifacts: got}
	if err := o.Validate(); err != nil {
		w.t.Fatalf("the operator wouldn't take it: %v", err)
	}
	total := int64(0)
	for i := range got.Kept {
		a := &got.Kept[i]
		content := read(w.t, files.Open(a.Path))
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != a.SHA256 || int64(len(content)) != a.Bytes {
			w.t.Errorf("%q has %d bytes with another hash, and %d are said", a.Path, len(content), a.Bytes)
		}
		if bytes.Contains(content, []byte("CANARY")) {
			w.t.Errorf("%q has what is outside", a.Path)
		}
		total += a.Bytes
	}
	if len(got.Kept) > w.request.MaxCount || total > w.request.MaxTotalBytes || files.Size() != total {
		w.t.Errorf("%d files with %d bytes are kept, and take %d", len(got.Kept), total, files.Size())
	}
	if (len(got.Kept) == 0) != (files == nil) {
		w.t.Errorf("%d are kept, and there are files: %v", len(got.Kept), files != nil)
	}
	return got
}

func read(t testing.TB, r output.Reader) []byte {
	t.Helper()
	if r == nil {
		t.Fatal("what is listed isn't there")
	}
	var content []byte
	for part := make([]byte, 1000); ; {
		n, err := r.ReadAt(context.Background(), part, int64(len(content)))
		content = append(content, part[:n]...)
		switch {
		case errors.Is(err, io.EOF):
			return content
		case err != nil || n == 0:
			t.Fatalf("at %d: %d bytes, %v", len(content), n, err)
		}
	}
}

func paths(got *result.Artifacts) string {
	var list []string
	for i := range got.Kept {
		list = append(list, got.Kept[i].Path)
	}
	return strings.Join(list, " ")
}

func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
