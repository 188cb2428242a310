package main

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const mebi = 1 << 20

// The main thread never ends before the program, and a mount namespace that it moved to wouldn't either: no test runs on it.
func init() { runtime.LockOSThread() }

// newDisks gives disks in a mount namespace of the test's own, as the node has one.
func newDisks(t *testing.T) disks {
	t.Helper()
	d := disks{dir: t.TempDir()}
	ownMounts(t)
	t.Cleanup(func() {
		entries, err := os.ReadDir(d.dir)
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			if err := d.remove(context.Background(), e.Name()); err != nil {
				t.Error(err)
			}
		}
	})
	return d
}

// ownMounts moves the goroutine's thread to a mount namespace of its own. The thread ends with the goroutine, and the
// namespace with the thread.
func ownMounts(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("this machine has no loop devices")
	}
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
	if err = errors.Join(err, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
		t.Skipf("this machine gives no mount namespace: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fill writes until the file system is full, and returns how much fitted.
func fill(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	chunk := bytes.Repeat([]byte{1}, mebi)
	for written := int64(0); ; {
		n, err := f.Write(chunk)
		written += int64(n)
		if errors.Is(err, unix.ENOSPC) {
			return written
		}
		must(t, err)
		if written > 1<<30 {
			t.Fatal("the volume doesn't fill up")
		}
	}
}

func TestAVolumeIsFullWhereItsClaimEnds(t *testing.T) {
	d := newDisks(t)
	const size = 64 * mebi
	must(t, d.make(t.Context(), "v", size))
	if got := fill(t, filepath.Join(d.mountPoint("v"), "f")); got > size || got < size*3/4 {
		t.Errorf("%d MiB fitted into a volume of %d", got/mebi, size/mebi)
	}
}

func TestAVolumesSpaceIsReserved(t *testing.T) {
	d := newDisks(t)
	const size = 64 * mebi
	must(t, d.make(t.Context(), "v", size))
	var st unix.Stat_t
	must(t, unix.Stat(d.file("v"), &st))
	if got := st.Blocks * 512; got < size {
		t.Errorf("only %d KiB of %d are the file's own", got>>10, size>>10)
	}
}

func TestMakingAgainKeepsWhatIsThere(t *testing.T) {
	d := newDisks(t)
	// An earlier try was cut off while it formatted.
	must(t, os.MkdirAll(d.mountPoint("v"), 0o755))
	must(t, os.WriteFile(d.file("v")+".unfinished", []byte("half a file system"), 0o600))
	must(t, d.make(t.Context(), "v", 16*mebi))
	kept := filepath.Join(d.mountPoint("v"), "kept")
	must(t, os.WriteFile(kept, []byte("kept"), 0o600))
	must(t, d.make(t.Context(), "v", 16*mebi))
	// Another was cut off before it mounted.
	must(t, unix.Unmount(d.mountPoint("v"), 0))
	must(t, d.make(t.Context(), "v", 16*mebi))
	if text, err := os.ReadFile(kept); string(text) != "kept" {
		t.Errorf("after making it again: %q, %v", text, err)
	}
}

func TestRemovingLeavesNothing(t *testing.T) {
	d := newDisks(t)
	must(t, d.make(t.Context(), "v", 16*mebi))
	must(t, d.make(t.Context(), "other", 16*mebi))
	for range 2 {
		must(t, d.remove(t.Context(), "v"))
	}
	entries, err := os.ReadDir(d.dir)
	must(t, err)
	if len(entries) != 1 || entries[0].Name() != "other" {
		t.Errorf("left: %v", entries)
	}
	awaitNoLoop(t, d.file("v"))
	if mounted, err := isMounted(d.mountPoint("other")); err != nil || !mounted {
		t.Errorf("the other volume is mounted: %t, %v", mounted, err)
	}
}

func TestAVolumeThatCannotBeMadeLeavesNothing(t *testing.T) {
	d := newDisks(t)
	for name, c := range map[string]struct {
		size int64
		says string
	}{
		"more than there is":          {math.MaxInt64, "have to stay free"},
		"too small for a file system": {4096, "mkfs.ext4"},
	} {
		err := d.make(t.Context(), "v", c.size)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if got, want := errors.Is(err, errNoRoom), c.size == math.MaxInt64; got != want {
			t.Errorf("%s: no room: %t", name, got)
		}
		entries, err := os.ReadDir(d.dir)
		must(t, err)
		if len(entries) != 0 {
			t.Errorf("%s left %v", name, entries)
		}
	}
}

// The node ends by a signal at any moment, without a word to this program.
func TestTheNamespacesEndFreesItsVolumes(t *testing.T) {
	dir := t.TempDir()
	d := disks{dir: dir}
	t.Run("a node", func(t *testing.T) {
		ownMounts(t)
		must(t, d.make(t.Context(), "v", 16*mebi))
		must(t, os.WriteFile(filepath.Join(d.mountPoint("v"), "f"), []byte("unsaved"), 0o600))
	})
	awaitNoLoop(t, d.file("v"))
	must(t, os.RemoveAll(filepath.Join(dir, "v")))
}

// awaitNoLoop waits until no loop device has the file. The kernel lets go of it after the last mount.
func awaitNoLoop(t *testing.T, file string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		must(t, err)
		used := false
		for _, name := range names {
			// A device that is freed in between has no such file.
			text, _ := os.ReadFile(name)
			used = used || strings.Contains(string(text), filepath.Dir(file))
		}
		if !used {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a loop device still has %s", file)
		}
	}
}
