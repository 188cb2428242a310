package files

import (
	"errors"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
)

func (c *call) makeDirectory() (_ Result, err error) {
	mode, err := permissions(c.req, 0o755)
	if err != nil {
		return Result{}, err
	}
	p, err := c.resolve(c.req.Path, how{follow: true, parents: true, missing: true})
	if err != nil {
		return Result{}, err
	}
	defer p.close()
	if p.exists() {
		return p.existingDirectory()
	}
	switch err := unix.Mkdirat(p.dir, p.name, 0o700); {
	case err == nil:
	case errors.Is(err, unix.EEXIST):
		// Somebody else made something meanwhile.
		if err = unix.Fstatat(p.dir, p.name, &p.st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
			return p.existingDirectory()
		}
		return Result{}, sys.FileError("make the directory", p.path, err)
	default:
		p.removeMade()
		return Result{}, sys.FileError("make the directory", p.path, err)
	}
	if err := chmodDir(p.dir, p.name, mode); err != nil {
		_ = unix.Unlinkat(p.dir, p.name, unix.AT_REMOVEDIR)
		p.removeMade()
		return Result{}, sys.FileError("set the mode of", p.path, err)
	}
	return Result{File: reason.File{Path: p.path, Created: true}}, sys.FileError("synchronize the directory of", p.path, syncDir(p.dir))
}

// existingDirectory is the result of making a directory that is there already.
func (p *place) existingDirectory() (Result, error) {
	if !sys.IsDir(&p.st) {
		return Result{}, sys.NewError(reason.FileExists, "%s exists already and is a %s: choose another path.", sys.Quote(p.path), typeOf(p.st.Mode))
	}
	// An allowed directory that was missing was made on the way.
	return Result{File: reason.File{Path: p.path, Created: len(p.made) > 0}}, nil
}

// chmodDir sets the mode of a new directory, which its owner can open. It keeps the bit that gives the directory's group to
// what is made in it, which volumes with a group have.
func chmodDir(dir int, name string, mode uint32) error {
	fd, err := sys.OpenBeneath(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	st, err := sys.Fstat(fd)
	if err != nil {
		return err
	}
	return unix.Fchmod(fd, mode|st.Mode&unix.S_ISGID)
}
