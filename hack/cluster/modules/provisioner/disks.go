package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// keepFree stays free on the machine's disk, so that volumes don't put the node under disk pressure.
const keepFree = 1 << 30

var errNoRoom = errors.New("the machine's disk has no room for the volume")

// disks keeps one folder per volume in dir: in it are the file that holds the volume's file system, and the folder that
// it is mounted at.
type disks struct {
	dir string
}

func (d disks) file(name string) string       { return filepath.Join(d.dir, name, "disk") }
func (d disks) mountPoint(name string) string { return filepath.Join(d.dir, name, "mount") }

// make makes a volume, or finishes one that an earlier try didn't.
func (d disks) make(ctx context.Context, name string, size int64) error {
	if err := os.MkdirAll(d.mountPoint(name), 0o755); err != nil {
		return fmt.Errorf("make the volume's folder: %w", err)
	}
	if err := d.format(ctx, name, size); err != nil {
		return errors.Join(err, d.remove(ctx, name))
	}
	mounted, err := isMounted(d.mountPoint(name))
	if err != nil || mounted {
		return err
	}
	// The disk is new: what isn't initialized reads as zeros already.
	return command(ctx, "mount", "-o", "loop,noinit_itable", d.file(name), d.mountPoint(name))
}

// format makes the volume's file system, whole or not at all.
func (d disks) format(ctx context.Context, name string, size int64) error {
	if _, err := os.Stat(d.file(name)); err == nil {
		return nil
	}
	unfinished := d.file(name) + ".unfinished"
	if err := d.reserve(unfinished, size); err != nil {
		return err
	}
	// Discarding would give the reserved space back.
	err := command(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1", unfinished)
	if err != nil {
		return err
	}
	return os.Rename(unfinished, d.file(name))
}

// reserve makes a file whose space is its own: writing to the volume can't fail later for want of it.
func (d disks) reserve(path string, size int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(d.dir, &st); err != nil {
		return fmt.Errorf("look for free space in %s: %w", d.dir, err)
	}
	if free := int64(st.Bavail) * st.Bsize; size > free-keepFree {
		// How much is free changes, and with it every try would make an Event of its own.
		return fmt.Errorf("%w: it needs %d MiB, and %d MiB have to stay free", errNoRoom, size>>20, keepFree>>20)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make the volume's file: %w", err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
		return fmt.Errorf("reserve the volume's space: %w", err)
	}
	return f.Close()
}

// remove removes a volume, or what an earlier try left. The space is free when the last container that sees the volume
// has ended.
func (d disks) remove(ctx context.Context, name string) error {
	mounted, err := isMounted(d.mountPoint(name))
	if err != nil {
		return err
	}
	if mounted {
		if err := command(ctx, "umount", d.mountPoint(name)); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(d.dir, name)); err != nil {
		return fmt.Errorf("remove the volume: %w", err)
	}
	return nil
}

// isMounted tells whether a folder is on another file system than its parent.
func isMounted(dir string) (bool, error) {
	var inside, outside unix.Stat_t
	err := unix.Lstat(dir, &inside)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err = errors.Join(err, unix.Lstat(filepath.Dir(dir), &outside)); err != nil {
		return false, fmt.Errorf("look whether the volume is mounted: %w", err)
	}
	return inside.Dev != outside.Dev, nil
}

func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
