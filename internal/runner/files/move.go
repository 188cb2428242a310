package files

import (
	"errors"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
)

func (c *call) move() (Result, error) {
	if c.req.Destination == "" {
		return Result{}, sys.NewError(reason.InvalidRequest, "The destination is empty: name the new path.")
	}
	from, err := c.resolve(c.req.Path, how{itself: true})
	if err != nil {
		return Result{}, err
	}
	defer from.close()
	to, err := c.resolve(c.req.Destination, how{itself: true, missing: true})
	if known := (*Error)(nil); errors.As(err, &known) && known.Reason == reason.FileNotFound {
		return Result{}, known.With(known.Message + " A Move makes no directories.")
	}
	if err != nil {
		return Result{}, err
	}
	defer to.close()
	if err := c.mayMove(from, to); err != nil {
		return Result{}, err
	}
	result := Result{File: reason.File{Path: to.path, Created: !to.exists()}}
	err = c.rename(from, to)
	if errors.Is(err, unix.EXDEV) {
		err = c.copyAcross(from, to)
		if err == nil {
			return result, c.removeCopied(from, to)
		}
		return Result{}, err
	}
	if err != nil {
		return Result{}, moveError(from, to, err)
	}
	for _, dir := range []int{to.dir, from.dir} {
		if err := syncDir(dir); err != nil {
			return result, sys.FileError("synchronize the directory of", to.path, err)
		}
	}
	return result, nil
}

// rename moves within a file system while no other call compares or replaces what has one of the names.
func (c *call) rename(from, to *place) error {
	unlock, err := lock(c.ctx, from, to)
	if err != nil {
		return err
	}
	defer unlock()
	return rename(from.dir, from.name, to.dir, to.name, !c.req.Overwrite)
}

// mayMove refuses what must stay where it is, and what a Move must not replace.
func (c *call) mayMove(from, to *place) error {
	for _, p := range []*place{from, to} {
		if p.isRoot() || c.rules.isKept(p.path) {
			return keptError(p)
		}
	}
	switch kind := typeOf(from.st.Mode); {
	case kind != TypeDirectory && to.mustBeDir && !sys.IsDir(&to.st):
		return sys.NewError(reason.NotDirectory, "%s isn't a directory: leave out the slash at the end.", sys.Quote(from.path))
	case kind != TypeDirectory && kind != TypeFile && kind != TypeLink:
		return sys.NewError(reason.PathNotAllowed, "%s is a %s: only files, directories and links can be moved.", sys.Quote(from.path), kind)
	case from.path == to.path:
		return sys.NewError(reason.InvalidRequest, "%s can't be moved onto itself: name another destination.", sys.Quote(from.path))
	case kind == TypeDirectory && isWithin(from.path, to.path):
		return sys.NewError(reason.InvalidRequest, "The directory %s can't be moved into itself: name another destination.", sys.Quote(from.path))
	case !to.exists():
	case sys.IsDir(&to.st):
		return sys.NewError(reason.IsDirectory, "The destination %s is a directory, which a Move doesn't replace: add the new name to it.",
			sys.Quote(to.path))
	case !c.req.Overwrite:
		return existsError(to)
	case sys.IsSame(&from.st, &to.st):
		// The kernel's rename would do nothing, and say that it succeeded.
		return sys.NewError(reason.FileExists, "%s and %s are names of the same file: delete one of them.", sys.Quote(from.path), sys.Quote(to.path))
	case kind == TypeDirectory:
		return sys.NewError(reason.FileExists, "A directory can't replace the file %s: choose another destination.", sys.Quote(to.path))
	}
	if !sys.IsDir(&from.st) {
		return nil
	}
	return c.holdsNothingDenied(from, to.path)
}

func keptError(p *place) error {
	return sys.NewError(reason.PathNotAllowed, "%s is one of the policy's allowed directories, or has one below it, and stays where it is: "+
		"name something in it.", sys.Quote(p.path))
}

func existsError(p *place) error {
	return sys.NewError(reason.FileExists, "The destination %s exists already: choose another, or set overwrite.", sys.Quote(p.path))
}

func moveError(from, to *place, err error) error {
	switch {
	case errors.Is(err, unix.EEXIST):
		return existsError(to)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return sys.NewError(reason.NotSupported, "The file system can't move %s without replacing what may be at %s: set overwrite.",
			sys.Quote(from.path), sys.Quote(to.path))
	}
	return sys.FileError("move to "+sys.Quote(to.path)+" from", from.path, err)
}

// holdsNothingDenied refuses to change the path of anything that is denied, or to give it a denied path.
func (c *call) holdsNothingDenied(p *place, newPath string) error {
	dirs := []string{p.path}
	if newPath != "" {
		dirs = append(dirs, newPath)
	}
	if c.rules.deniesNothingBelow(dirs...) {
		return nil
	}
	w := &walker{c: c, denied: func(relative string) bool {
		return c.rules.isDenied(p.path+"/"+relative) || newPath != "" && c.rules.isDenied(newPath+"/"+relative)
	}}
	all := func(string, int) bool { return true }
	err := w.walk(p, all, func(string, *directory, dirent) error { return nil })
	switch {
	case err != nil:
		return err
	case w.skipped.Denied > 0:
		return sys.NewError(reason.PathNotAllowed, "%s has something below it that is the runner's own or that the policy's files.deniedPaths deny: name the other entries "+
			"one by one.", sys.Quote(p.path))
	case w.truncated || w.skipped != (Skipped{}):
		return sys.NewError(reason.PathNotAllowed, "%s is too large or too deep, or has unreadable directories, to make sure that it holds "+
			"nothing that is the runner's own or that the policy's files.deniedPaths deny: name what is in it one by one.", sys.Quote(p.path))
	}
	return nil
}

// copyAcross copies a file that is moved to another file system, as a whole.
func (c *call) copyAcross(from, to *place) error {
	if !sys.IsRegular(&from.st) {
		return sys.NewError(reason.NotSupported, "%s and %s are on different file systems, between which only files can be moved: make the "+
			"directory, and move the files in it one by one.", sys.Quote(from.path), sys.Quote(to.path))
	}
	fd, err := from.openFile()
	if err != nil {
		return err
	}
	defer sys.Close(fd)
	st := from.st
	if st.Size > c.rules.MaxWriteBytes {
		return sys.NewError(reason.FileTooLarge, "%s has %d bytes, and %s is on another file system: the policy's files.maxWriteBytes allows "+
			"copies of %s.", sys.Quote(from.path), st.Size, sys.Quote(to.path), boundText(c.rules.MaxWriteBytes))
	}
	content := sys.NewReader(c.ctx, fd, sys.Span{End: st.Size})
	// The owner is that of the file that moves, not of the one that it replaces.
	target := &place{path: to.path, dir: to.dir, name: to.name, fd: from.fd, st: st}
	err = c.replace(target, content, st.Mode&0o777, condition{absent: !c.req.Overwrite})
	if reasonIs(err, reason.FileExists) {
		return existsError(to)
	}
	return err
}

// removeCopied removes the source of a copy, if it is still what was copied.
func (c *call) removeCopied(from, to *place) error {
	unlock, err := lock(c.ctx, from)
	if err != nil {
		return err
	}
	defer unlock()
	var now unix.Stat_t
	err = unix.Fstatat(from.dir, from.name, &now, unix.AT_SYMLINK_NOFOLLOW)
	if st := &from.st; err == nil && (!sys.IsSame(&now, st) || now.Size != st.Size || now.Mtim != st.Mtim) {
		return sys.NewError(reason.FileChanged, "%s was changed while it was copied to %s, and is still there: compare the two.",
			sys.Quote(from.path), sys.Quote(to.path))
	}
	if err == nil {
		err = unix.Unlinkat(from.dir, from.name, 0)
	}
	return sys.FileError("remove, after it was copied,", from.path, err)
}
