package realdir

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
)

// dice turns fuzzed bytes into choices; when they run out every choice is the first.
type dice struct{ data []byte }

func (d *dice) roll(n int) int {
	if len(d.data) == 0 {
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return int(b) % n
}

// path makes one out of few names, so that it often leads somewhere.
func (d *dice) path(prefix string) string {
	var b strings.Builder
	b.WriteString(prefix)
	for range 1 + d.roll(4) {
		if b.Len() > 0 {
			b.WriteByte('/')
		}
		names := []string{"a", "b", "..", "ws", "l", "ws2", ".", "f", ""}
		b.WriteString(names[d.roll(len(names))])
	}
	return b.String()
}

// plant makes directories, files and links below root; what can't be made isn't.
func (d *dice) plant(root string) {
	_ = os.MkdirAll(root+"/ws/a/b", 0o755)
	_ = os.WriteFile(root+"/ws/f", nil, 0o644)
	for range d.roll(10) {
		name := filepath.Clean(root + "/" + filepath.Clean("/"+d.path("")))
		switch d.roll(4) {
		case 0:
			_ = os.MkdirAll(name, 0o755)
		case 1:
			_ = os.WriteFile(name, nil, 0o644)
		case 2:
			_ = os.Symlink(d.path(root), name)
		case 3:
			_ = os.Symlink(strings.TrimPrefix(d.path(""), "/"), name)
		}
	}
}

// FuzzOpenDir holds OpenDir to the kernel: it finds the same directory, or none as the kernel does, and
// allows it just when the kernel resolves an allowed path to one of its parents.
func FuzzOpenDir(f *testing.F) {
	f.Add([]byte("seed"))
	for i := range 48 {
		f.Add(slices.Repeat([]byte{byte(i * 5), byte(i*11 + 2), byte(i*3 + 1), byte(i)}, 20))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		root := newRoot(t)
		d := &dice{data: data}
		d.plant(root)
		for range 4 {
			req := envresolve.DirRequest{
				WorkingDir:      d.path(root),
				ImageWorkingDir: root + "/ws",
				AllowedPaths:    []string{d.path(root), d.path(root + "/ws")},
			}
			if d.roll(2) == 1 {
				req.WorkingDir = strings.TrimPrefix(d.path(""), "/")
			}
			compare(t, req)
		}
	})
}

func compare(t *testing.T, req envresolve.DirRequest) {
	t.Helper()
	asked := req.WorkingDir
	if !strings.HasPrefix(asked, "/") {
		asked = req.ImageWorkingDir + "/" + asked
	}
	want, kernelErr := kernelDir(asked)
	var reason string
	switch {
	case kernelErr != nil:
		want, reason = "", result.WorkingDirNotFound
	case !kernelAllows(req.AllowedPaths, want):
		want, reason = "", result.WorkingDirNotAllowed
	}
	file, got, err := OpenDir(req)
	if got != want || reasonOf(err) != reason {
		t.Errorf("%+v: got %q, %v; the kernel says %q, %s (%v)", req, got, err, want, reason, kernelErr)
	}
	if file != nil {
		file.Close()
	}
}

func kernelAllows(allowed []string, dir string) bool {
	for _, path := range allowed {
		root, err := kernelDir(path)
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(root, dir); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return true
		}
	}
	return false
}
