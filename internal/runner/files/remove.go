package files

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
)

func (c *call) remove(p *place) (Result, error) {
	condition, err := conditionOf(c.req)
	if err != nil {
		return Result{}, err
	}
	switch {
	case p.isRoot() || c.rules.isKept(p.path):
		return Result{}, keptError(p)
	case !sys.IsDir(&p.st):
		if err := c.unlink(p, condition); err != nil {
			return Result{}, sys.FileError("delete", p.path, err)
		}
		return deleted(p, 1), sys.FileError("synchronize the directory of", p.path, syncDir(p.dir))
	case condition.sha256 != "":
		return Result{}, sys.NewError(reason.IsDirectory, "%s is a directory, and not the file with the checksum %s: delete it without a checksum.",
			sys.Quote(p.path), condition.sha256)
	case !c.req.Recursive:
		return Result{}, sys.NewError(reason.IsDirectory, "%s is a directory: the file action Delete with recursive deletes it with everything in it.",
			sys.Quote(p.path))
	}
	if err := c.holdsNothingDenied(p, ""); err != nil {
		return Result{}, err
	}
	t := &treeRemoval{c: c}
	err = t.removeDir(p.dir, p.name, p.path, 0)
	if err == nil {
		err = sys.FileError("synchronize the directory of", p.path, syncDir(p.dir))
	}
	return deleted(p, t.removed), t.inPart(err)
}

func deleted(p *place, count int) Result {
	return Result{File: reason.File{Path: p.path, Matches: new(int64(count))}}
}

// unlink removes a name, if the condition holds, while no other call compares or replaces what has it.
func (c *call) unlink(p *place, condition condition) error {
	unlock, err := lock(c.ctx, p)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.check(p, condition); err != nil {
		return err
	}
	return unix.Unlinkat(p.dir, p.name, 0)
}

// treeRemoval deletes a tree. It goes down by descriptors, and unlinks names in open directories.
type treeRemoval struct {
	c       *call
	removed int
}

// inPart adds to an error how much was deleted before it. Who ends the context sees it in the result.
func (t *treeRemoval) inPart(err error) error {
	known := (*Error)(nil)
	if t.removed == 0 || !errors.As(err, &known) {
		return err
	}
	return known.With(fmt.Sprintf("%s %d files and directories in it were deleted before.", known.Message, t.removed))
}

// removeDir deletes a directory with everything in it.
func (t *treeRemoval) removeDir(dir int, name, path string, depth int) error {
	if depth > MaxDepth {
		return sys.NewError(reason.NotSupported, "%s is more than %d directories deep: delete a directory further down first.", sys.Quote(path), MaxDepth)
	}
	fd, err := sys.OpenSameMount(dir, name)
	if errors.Is(err, unix.EXDEV) {
		return sys.NewError(reason.PermissionDenied, "%s is a mounted volume: delete what is in it, not the directory that it is mounted in.",
			sys.Quote(path))
	}
	if err != nil {
		return sys.FileError("open", path, err)
	}
	defer sys.Close(fd)
	if err := t.empty(fd, path, depth); err != nil {
		return err
	}
	if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err != nil && err != unix.ENOENT {
		return sys.FileError("delete", path, err)
	}
	t.removed++
	return nil
}

// empty deletes what is in an open directory. A directory that changes while it is read may leave out names, so it is read
// until nothing is left.
func (t *treeRemoval) empty(fd int, path string, depth int) error {
	for {
		before := t.removed
		if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
			return sys.FileError("list", path, err)
		}
		err := readDir(t.c.ctx, fd, func(e dirent) error { return t.removeEntry(fd, path, e, depth) })
		if err != nil {
			return sys.FileError("list", path, err)
		}
		if t.removed == before {
			return nil
		}
	}
}

func (t *treeRemoval) removeEntry(fd int, path string, e dirent, depth int) error {
	full := path + "/" + e.name
	if t.c.rules.isDenied(full) {
		return t.c.rules.deniedError(full, full)
	}
	if e.kind == unix.DT_DIR {
		return t.removeDir(fd, e.name, full, depth+1)
	}
	switch err := unix.Unlinkat(fd, e.name, 0); {
	case err == nil:
		t.removed++
		return nil
	case errors.Is(err, unix.EISDIR):
		return t.removeDir(fd, e.name, full, depth+1)
	case errors.Is(err, unix.ENOENT):
		return nil
	default:
		return sys.FileError("delete", full, err)
	}
}
