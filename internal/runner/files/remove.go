package files

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

func (c *call) remove() (Result, error) {
	condition, err := conditionOf(c.req)
	if err != nil {
		return Result{}, err
	}
	p, err := c.resolve(c.req.Path, how{itself: true})
	if err != nil {
		return Result{}, err
	}
	defer p.close()
	switch {
	case p.isRoot() || c.rules.isKept(p.path):
		return Result{}, keptError(p)
	case !isDir(&p.st):
		if err := c.unlink(p, condition); err != nil {
			return Result{}, fileError("delete", p.path, err)
		}
		return Result{Path: p.path, Matches: 1}, fileError("synchronize the directory of", p.path, syncDir(p.dir))
	case condition.needsFile():
		return Result{}, newError(IsDirectory, "%s is a directory, and not the file with the checksum %s: leave out ifSHA256 to delete it.",
			quote(p.path), condition.sha256)
	case !c.req.Recursive:
		return Result{}, newError(IsDirectory, "%s is a directory: set recursive to delete it with everything in it.", quote(p.path))
	}
	if err := c.holdsNothingDenied(p, ""); err != nil {
		return Result{}, err
	}
	t := &treeRemoval{c: c}
	err = t.removeDir(p.dir, p.name, p.path, 0)
	if err == nil {
		err = fileError("synchronize the directory of", p.path, syncDir(p.dir))
	}
	return Result{Path: p.path, Matches: t.removed}, t.inPart(err)
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

// inPart adds to an error how much was deleted before it.
func (t *treeRemoval) inPart(err error) error {
	if err == nil || t.removed == 0 {
		return err
	}
	deleted := fmt.Sprintf("%d files and directories in it were deleted before.", t.removed)
	if known := (*Error)(nil); errors.As(err, &known) {
		return &Error{known.Reason, known.Message + " " + deleted, known.Cause}
	}
	return fmt.Errorf("%w: %s", err, deleted)
}

// removeDir deletes a directory with everything in it.
func (t *treeRemoval) removeDir(dir int, name, path string, depth int) error {
	if depth > MaxDepth {
		return newError(NotSupported, "%s is more than %d directories deep: delete a directory further down first.", quote(path), MaxDepth)
	}
	fd, err := openSameMount(dir, name)
	if errors.Is(err, unix.EXDEV) {
		return &Error{PermissionDenied, quote(path) + " is a mounted volume: delete what is in it, not the directory that it is " +
			"mounted in.", err}
	}
	if err != nil {
		return fileError("open", path, err)
	}
	defer closeAll(fd)
	if err := t.empty(fd, path, depth); err != nil {
		return err
	}
	if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err != nil && err != unix.ENOENT {
		return fileError("delete", path, err)
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
			return fileError("list", path, err)
		}
		err := readDir(t.c.ctx, fd, func(e dirent) error { return t.removeEntry(fd, path, e, depth) })
		if err != nil {
			return fileError("list", path, err)
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
		return fileError("delete", full, err)
	}
}
