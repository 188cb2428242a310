package kernel

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that may chroot has another root than this one, and its paths lead to nothing outside of that.
func TestPathsStartAtTheRootOfTheThread(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may chroot")
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "in"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "in/file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"absolute": "/in/file", "in/upward": "../../../in/file", "magic": "/proc/self/exe"} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	thread, open, ended := make(chan int), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		OnThreadOfItsOwn(func() {
			if unix.Unshare(unix.CLONE_FS) != nil || unix.Chroot(root) != nil || unix.Chdir("/in") != nil {
				t.Error("it can't get a root of its own")
			}
			thread <- unix.Gettid()
			<-open
		})
	}()
	defer func() { close(open); <-ended }()
	own := Thread(<-thread)
	var want unix.Stat_t
	if err := unix.Stat(filepath.Join(root, "in/file"), &want); err != nil {
		t.Fatal(err)
	}
	paths := []string{"/in/file", "/absolute", "/in/upward", "/../../in/file", "file", "upward", "../absolute", "../../../in/file"}
	for _, path := range paths {
		fd, errno := own.Open(unix.AT_FDCWD, path, 0)
		if errno != 0 {
			t.Errorf("%s: %v", path, errno)
			continue
		}
		var got unix.Stat_t
		if err := unix.Fstat(fd, &got); err != nil || got.Dev != want.Dev || got.Ino != want.Ino {
			t.Errorf("%s leads to another file: %v", path, err)
		}
		unix.Close(fd)
	}
	for _, path := range []string{"/etc/passwd", "/magic", filepath.Join(root, "in/file")} {
		if fd, errno := own.Open(unix.AT_FDCWD, path, 0); errno != unix.ENOENT {
			t.Errorf("%s: descriptor %d, %v", path, fd, errno)
		}
	}
}
