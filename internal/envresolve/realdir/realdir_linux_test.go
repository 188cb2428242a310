package realdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
)

// newRoot makes an empty directory that every user can reach, its path free of links.
func newRoot(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// kernelDir is the kernel's own answer: the directory's path, or an error.
func kernelDir(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return os.Readlink("/proc/self/fd/" + itoa(fd))
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

func inode(t testing.TB, file *os.File) uint64 {
	t.Helper()
	var stat unix.Stat_t
	must(t, unix.Fstat(int(file.Fd()), &stat))
	return stat.Ino
}

func reasonOf(err error) string {
	var dirErr *envresolve.DirError
	if errors.As(err, &dirErr) {
		return dirErr.Reason
	}
	return ""
}

func TestOpenDir(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	ws, out := root+"/ws", root+"/out"
	must(t, os.MkdirAll(ws+"/src/deep", 0o755))
	must(t, os.MkdirAll(root+"/ws2", 0o755))
	must(t, os.MkdirAll(out, 0o755))
	must(t, os.WriteFile(ws+"/file", nil, 0o644))
	must(t, unix.Mkfifo(ws+"/fifo", 0o644))
	for link, target := range map[string]string{
		ws + "/in": "src/deep", ws + "/leak": out, ws + "/up": "../out", ws + "/loop": "loop", root + "/link": ws,
	} {
		must(t, os.Symlink(target, link))
	}
	cases := []struct {
		name, dir string
		want      string
		reason    string
	}{
		{"the image's directory", "", ws, ""},
		{"a relative path", "src/deep", ws + "/src/deep", ""},
		{"a link that stays inside", ws + "/in", ws + "/src/deep", ""},
		{"the parent of where a link leads", "in/..", ws + "/src", ""},
		{"a link from outside", root + "/link/src", ws + "/src", ""},
		{"a link that leads out", "leak", "", result.WorkingDirNotAllowed},
		{"a relative link that leads out", "up", "", result.WorkingDirNotAllowed},
		{"climbing out", "../out", "", result.WorkingDirNotAllowed},
		{"a sibling", root + "/ws2", "", result.WorkingDirNotAllowed},
		{"a loop", "loop", "", result.WorkingDirNotFound},
		{"a file", "file", "", result.WorkingDirNotFound},
		{"a pipe, which opening must not wait on", "fifo", "", result.WorkingDirNotFound},
		{"a device", "/dev/null", "", result.WorkingDirNotFound},
		{"nothing", "none", "", result.WorkingDirNotFound},
		{"a name that is too long", strings.Repeat("n", 300), "", result.WorkingDirNotFound},
		{"the text of a link in /proc, not its target", "/proc/self/cwd/../../../../../../../..", "", result.WorkingDirNotAllowed},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file, path, err := OpenDir(envresolve.DirRequest{WorkingDir: c.dir, ImageWorkingDir: ws, AllowedPaths: []string{root + "/link"}})
			if path != c.want || reasonOf(err) != c.reason {
				t.Fatalf("got %q, %v", path, err)
			}
			if err != nil {
				return
			}
			defer file.Close()
			want, err := os.Open(c.want)
			must(t, err)
			defer want.Close()
			if inode(t, file) != inode(t, want) {
				t.Errorf("the handle isn't %s", c.want)
			}
		})
	}
}

// TestTheHandleIsWhereAProcessStarts changes the working directory of the test itself, so it isn't parallel.
func TestTheHandleIsWhereAProcessStarts(t *testing.T) {
	root := newRoot(t)
	must(t, os.Mkdir(root+"/checked", 0o755))
	t.Chdir(root) // Restored at the end.
	file, _, err := OpenDir(envresolve.DirRequest{WorkingDir: "checked", ImageWorkingDir: root})
	must(t, err)
	defer file.Close()
	must(t, os.Rename(root+"/checked", root+"/moved"))
	must(t, os.Symlink("/etc", root+"/checked"))
	must(t, file.Chdir())
	if got, err := os.Getwd(); got != root+"/moved" {
		t.Errorf("started in %q, %v", got, err)
	}
}

func TestPermissionsAreOurs(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	must(t, os.MkdirAll(root+"/locked/inner", 0o755))
	must(t, os.Mkdir(root+"/searchable", 0o711))
	must(t, os.Chmod(root+"/locked", 0o644))
	t.Cleanup(func() { must(t, os.Chmod(root+"/locked", 0o755)) })
	open := func(dir string) error {
		file, _, err := OpenDir(envresolve.DirRequest{WorkingDir: dir, ImageWorkingDir: root})
		if err == nil {
			file.Close()
		}
		return err
	}
	unprivileged(t, func() {
		for _, dir := range []string{"locked", "locked/inner"} {
			err := open(dir)
			if reasonOf(err) != result.WorkingDirNotFound || !errors.Is(err, fs.ErrPermission) {
				t.Errorf("%s: got %v", dir, err)
			}
		}
		if err := open("searchable"); err != nil {
			t.Errorf("a directory that we may search but not read: %v", err)
		}
	})
}

// unprivileged runs f on a thread whose rights to files are nobody's, also when root runs the test. The
// thread stays locked and so ends with its goroutine.
func unprivileged(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if os.Getuid() == 0 {
			runtime.LockOSThread()
			if err := unix.Setfsuid(65534); err != nil {
				t.Error(err)
				return
			}
		}
		f()
	}()
	<-done
}

func TestNothingStaysOpen(t *testing.T) {
	root := newRoot(t)
	must(t, os.MkdirAll(root+"/a/b/c", 0o755))
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(entries)
	}
	before := count()
	for _, dir := range []string{"a/b/c", "none", "/etc", "a/../a/b"} {
		file, _, err := OpenDir(envresolve.DirRequest{WorkingDir: dir, ImageWorkingDir: root})
		if err == nil {
			file.Close()
		}
	}
	if after := count(); after != before {
		t.Errorf("%d handles before, %d after", before, after)
	}
}

// TestSwappingLinksNeverEscapes exchanges a directory and a link to the outside as fast as it can while the
// directory is opened: every handle that comes back must be inside.
func TestSwappingLinksNeverEscapes(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	must(t, os.MkdirAll(root+"/ws/a/work", 0o755))
	must(t, os.MkdirAll(root+"/out/work", 0o755))
	must(t, os.Symlink("../out", root+"/ws/b"))
	inside, err := os.Open(root + "/ws/a/work")
	must(t, err)
	defer inside.Close()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, root+"/ws/a", unix.AT_FDCWD, root+"/ws/b", unix.RENAME_EXCHANGE)
			}
		}
	}()
	req := envresolve.DirRequest{WorkingDir: root + "/ws/a/work", AllowedPaths: []string{root + "/ws"}}
	opened, refused := 0, 0
	for range 5000 {
		file, _, err := OpenDir(req)
		if err != nil {
			refused++
			continue
		}
		opened++
		if inode(t, file) != inode(t, inside) {
			t.Error("a handle outside the allowed path came back")
		}
		file.Close()
	}
	close(stop)
	<-stopped
	t.Logf("%d opened, %d refused", opened, refused)
}

func BenchmarkOpenDir(b *testing.B) {
	root := newRoot(b)
	must(b, os.MkdirAll(root+"/a/b/c", 0o755))
	req := envresolve.DirRequest{WorkingDir: "a/b/c", ImageWorkingDir: root, AllowedPaths: []string{root}}
	b.ReportAllocs()
	for b.Loop() {
		file, _, err := OpenDir(req)
		must(b, err)
		file.Close()
	}
}
