package files

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
)

// Bounds of one lookup. The kernel follows 40 links; the other bounds the work that links of links cause.
const (
	maxLinks = 40
	maxSteps = 8192
)

// place is where a path leads: a name in an open directory, and what has that name.
type place struct {
	// path is without links. It was compared with the rules.
	path string
	// dir is the parent's descriptor, good for lookups only. It is -1 for an allowed directory itself, which has no name.
	dir  int
	name string
	// fd refers to what is there, without the right to read it; -1 if nothing is. st describes it.
	fd int
	st unix.Stat_t
	// mustBeDir says that the path ends like a directory's.
	mustBeDir bool
	// made are the directories that were made on the way, the outermost first.
	made []madeDir
}

// madeDir is a directory that was made; dir is its parent.
type madeDir struct {
	dir  int
	name string
}

func (p *place) exists() bool { return p.fd >= 0 }

// isRoot says that the place is an allowed directory itself.
func (p *place) isRoot() bool { return p.dir < 0 }

func (p *place) close() {
	sys.Close(p.dir, p.fd)
	for _, m := range p.made {
		sys.Close(m.dir)
	}
	p.dir, p.fd, p.made = -1, -1, nil
}

// removeMade removes the directories that were made, if they are still empty.
func (p *place) removeMade() {
	for i := len(p.made) - 1; i >= 0; i-- {
		_ = unix.Unlinkat(p.made[i].dir, p.made[i].name, unix.AT_REMOVEDIR)
	}
}

// how says how a path is resolved.
type how struct {
	// follow follows a link with the last name.
	follow bool
	// parents makes missing directories on the way.
	parents bool
	// itself refuses a link that ends like a directory, which names what it leads to.
	itself bool
	// missing lets nothing be at the path.
	missing bool
}

// resolver follows a path name by name, as the kernel does. Only allowed directories are opened: above them, where cur is
// -1, it goes by the names of the rules alone.
type resolver struct {
	c *call
	how
	asked string
	// at is the directory so far, without links; cur refers to it.
	at   string
	cur  int
	rest string
	// mustBeDir is set when the last name was taken.
	mustBeDir    bool
	links, steps int
	devices      sys.Devices
	made         []madeDir
}

// resolve follows a path of the request. The caller closes the place.
func (c *call) resolve(asked string, how how) (*place, error) {
	absolute, err := absolute(c.req, asked)
	if err != nil {
		return nil, err
	}
	r := &resolver{c: c, how: how, asked: asked, at: "/", cur: -1, rest: absolute}
	p, err := r.walk()
	if p == nil {
		p = &place{dir: -1, fd: -1}
	}
	p.made, p.mustBeDir = r.made, r.mustBeDir
	if p.dir != r.cur {
		sys.Close(r.cur)
	}
	if err == nil && !p.exists() && !how.missing {
		err = r.notFound(p.path)
	}
	if err != nil {
		p.removeMade()
		p.close()
		return nil, err
	}
	return p, nil
}

// walk takes names until the last.
func (r *resolver) walk() (*place, error) {
	if err := r.jump("/"); err != nil {
		return nil, err
	}
	for r.rest != "" {
		if r.steps++; r.steps > maxSteps {
			return nil, sys.NewError(reason.InvalidRequest, "%s leads through too many names: choose a shorter path.", sys.Quote(r.asked))
		}
		if err := r.c.ctx.Err(); err != nil {
			return nil, err
		}
		p, err := r.step()
		if p != nil || err != nil {
			return p, err
		}
	}
	return r.end()
}

// step takes one name. It returns the place if that was the last.
func (r *resolver) step() (*place, error) {
	name, rest, slash := strings.Cut(r.rest, "/")
	r.rest = rest
	switch name {
	case "", ".":
		return nil, nil
	case "..":
		return nil, r.jump(path.Dir(r.at))
	}
	last := isEnd(rest)
	r.mustBeDir = last && slash
	full := path.Join(r.at, name)
	if len(full) > maxPathBytes {
		return nil, sys.NewError(reason.InvalidRequest, "%s leads to a path of %d bytes: a path has at most %d.", sys.Quote(r.asked), len(full),
			maxPathBytes)
	}
	if r.c.rules.isDenied(full) {
		return nil, r.c.rules.deniedError(r.asked, full)
	}
	if r.cur < 0 {
		return nil, r.jump(full)
	}
	return r.enter(full, name, last)
}

// isEnd says that a rest of a path names nothing more.
func isEnd(rest string) bool { return strings.Trim(rest, "/.") == "" && !strings.Contains(rest, "..") }

// jump goes to a directory by a path without links: a parent, an allowed directory, or one on the way to it.
func (r *resolver) jump(to string) error {
	sys.Close(r.cur)
	r.at, r.cur = to, -1
	root, ok := r.c.rules.rootOf(to)
	if !ok {
		if r.c.rules.leadsToRoot(to) {
			return nil
		}
		return r.c.rules.notAllowed(r.asked, to)
	}
	fd, err := r.openRoot(root)
	if err != nil {
		return err
	}
	if to == root {
		r.cur = fd
		return nil
	}
	defer sys.Close(fd)
	r.cur, err = sys.OpenBeneath(fd, strings.TrimPrefix(to[len(root):], "/"), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		r.cur = -1
		return sys.FileError("open", to, err)
	}
	return nil
}

// openRoot opens an allowed directory.
func (r *resolver) openRoot(root string) (int, error) {
	fd, err := sys.OpenRoot(root)
	if errors.Is(err, unix.ENOENT) && r.mayMake() {
		fd, err = r.makeRoot(root)
	}
	switch {
	case err == nil:
	case errors.Is(err, unix.ELOOP):
		return -1, sys.NewError(reason.PathNotAllowed, "The allowed directory %s is reached over a symbolic link, which a call could change: "+
			"name the directory that the link leads to in the policy's files.%s.", sys.Quote(root), r.c.rules.listField)
	case errors.Is(err, unix.ENOENT):
		return -1, sys.NewError(reason.FileNotFound, "The allowed directory %s doesn't exist: the image or a volume has to bring it.",
			sys.Quote(root))
	default:
		return -1, sys.FileError("open the allowed directory", root, err)
	}
	if _, err := lookAt(fd, r.asked, root, &r.devices); err != nil {
		return -1, sys.FileError("open the allowed directory", root, err)
	}
	return fd, nil
}

// enter looks at a name in the current directory, and goes on from there.
func (r *resolver) enter(full, name string, last bool) (*place, error) {
	fd, err := sys.OpenBeneath(r.cur, name, sys.PathFlags, 0)
	if errors.Is(err, unix.ENOENT) {
		if last {
			return &place{path: full, dir: r.cur, name: name, fd: -1}, nil
		}
		if !r.mayMake() {
			return nil, r.notFound(full)
		}
		fd, err = r.makeIn(r.cur, name, sys.PathFlags)
	}
	if err != nil {
		return nil, sys.FileError("find", full, err)
	}
	st, err := lookAt(fd, r.asked, full, &r.devices)
	if err != nil {
		return nil, sys.FileError("find", full, err)
	}
	switch typeOf(st.Mode) {
	case TypeLink:
		if last && !r.follow && !r.mustBeDir {
			break
		}
		defer sys.Close(fd)
		if last && r.itself {
			return nil, sys.NewError(reason.NotDirectory, "%s is a symbolic link: leave out the slash at the end for the link itself, or name "+
				"what it leads to.", sys.Quote(full))
		}
		return nil, r.followLink(full, fd)
	case TypeDirectory:
		if !last {
			sys.Close(r.cur)
			r.at, r.cur = full, fd
			return nil, nil
		}
	default:
		if !last || r.mustBeDir {
			sys.Close(fd)
			return nil, sys.FileError("look below", full, unix.ENOTDIR)
		}
	}
	return &place{path: full, dir: r.cur, name: name, fd: fd, st: st}, nil
}

// mayMake says that directories may be made which are missing on the way. What a ".." behind one means isn't clear before it
// exists.
func (r *resolver) mayMake() bool { return r.parents && !strings.Contains("/"+r.rest+"/", "/../") }

// makeIn makes a directory in another, and opens it.
func (r *resolver) makeIn(parent int, name string, flags int) (int, error) {
	err := unix.Mkdirat(parent, name, 0o755)
	if err != nil && err != unix.EEXIST {
		return -1, err
	}
	if err == nil {
		dir, err := sys.OpenBeneath(parent, ".", unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			_ = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
			return -1, err
		}
		r.made = append(r.made, madeDir{dir, name})
	}
	return sys.OpenBeneath(parent, name, flags, 0)
}

// makeRoot makes an allowed directory that is missing, such as the working directory of a call, with its parents.
func (r *resolver) makeRoot(root string) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY
	at, err := sys.OpenRoot("/")
	for name := range strings.SplitSeq(root[1:], "/") {
		if err != nil {
			return -1, err
		}
		next, openErr := sys.OpenBeneath(at, name, flags, 0)
		if errors.Is(openErr, unix.ENOENT) {
			next, openErr = r.makeIn(at, name, flags)
		}
		sys.Close(at)
		at, err = next, openErr
	}
	return at, err
}

// followLink goes on with the target of a link.
func (r *resolver) followLink(full string, fd int) error {
	if r.links++; r.links > maxLinks {
		return sys.NewError(reason.InvalidRequest, "%s leads over more than %d symbolic links, or over a loop of them: name the path that "+
			"the links lead to.", sys.Quote(r.asked), maxLinks)
	}
	target, err := sys.ReadLink(fd, "")
	if err != nil {
		return sys.FileError("read the symbolic link", full, err)
	}
	if target == "" {
		return sys.FileError("follow the symbolic link", full, unix.ENOENT)
	}
	slash := ""
	if r.rest != "" || r.mustBeDir {
		slash = "/"
	}
	r.rest, r.mustBeDir = target+slash+r.rest, false
	if strings.HasPrefix(target, "/") {
		return r.jump("/")
	}
	return nil
}

// end returns the place of a path that ends in a directory without naming it: with ".", "..", or at an allowed directory.
func (r *resolver) end() (*place, error) {
	r.mustBeDir = true
	if r.cur < 0 {
		return nil, r.c.rules.notAllowed(r.asked, r.at)
	}
	if root, _ := r.c.rules.rootOf(r.at); root == r.at {
		fd := r.cur
		r.cur = -1
		st, err := sys.Fstat(fd)
		return &place{path: r.at, dir: -1, fd: fd, st: st}, err
	}
	here := r.at
	if err := r.jump(path.Dir(here)); err != nil {
		return nil, err
	}
	return r.enter(here, path.Base(here), true)
}
