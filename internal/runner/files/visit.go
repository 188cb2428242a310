package files

import (
	"context"
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/glob"
	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/patterns"
	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/spec"
)

// Candidate is a name that a glob matches, good until visit returns.
type Candidate struct {
	// Path is absolute where the glob is, or is in the home directory, and otherwise relative to the working directory.
	Path string
	// Real is the absolute path; a link with the last name isn't resolved in it.
	Real string

	call *call
	dir  *directory
	kind byte
}

// Visit calls visit for each name that a glob matches below the directories that rules let a call write to, in the order of the
// paths, but for directories. An error of visit ends it. Links to directories aren't followed below the directory that the glob
// names. isCut says that the tree is larger than a walk.
//
// Path of the request is the glob. Only it, WorkingDir and Home count.
func Visit(ctx context.Context, rules *Rules, r *spec.File, visit func(*Candidate) error) (skipped Skipped, isCut bool, err error) {
	pattern := r.Path
	c, err := newCall(ctx, rules, r, true)
	if err != nil {
		return Skipped{}, false, err
	}
	dir, rest, err := glob.Split(pattern)
	if err != nil {
		return Skipped{}, false, sys.NewError(reason.InvalidPattern, "%s isn't a glob of files: %v.", sys.Quote(pattern), err)
	}
	below, err := patterns.CompileGlob(rest, false)
	if err != nil {
		return Skipped{}, false, err
	}
	if isHome := dir == "~" || strings.HasPrefix(dir, "~/"); isHome {
		if dir, err = absolute(r, dir); err != nil {
			return Skipped{}, false, err
		}
	}
	p, err := c.resolve(dir, how{follow: true})
	if err != nil {
		return Skipped{}, false, err
	}
	defer p.close()
	w := c.searching(p)
	err = w.walkGlob(p, below, func(relative string, in *directory, e dirent) error {
		if e.kind == unix.DT_DIR {
			return nil
		}
		found := &Candidate{Path: relative, Real: path.Join(p.path, relative), call: c, dir: in, kind: e.kind}
		if dir != "." {
			found.Path = strings.TrimSuffix(dir, "/") + "/" + relative
		}
		return visit(found)
	})
	return w.skipped, w.truncated, err
}

// IsLink says that the name was a symbolic link.
func (f *Candidate) IsLink() bool { return f.kind == unix.DT_LNK }

// IsRegular says that the name was a regular file.
func (f *Candidate) IsRegular() bool { return f.kind == unix.DT_REG }

// Open opens a regular file to copy it. A link is followed as far as the rules allow.
func (f *Candidate) Open() (*Opened, error) {
	p := &place{path: f.Real, dir: f.dir.fd, name: path.Base(f.Real), st: unix.Stat_t{Mode: unix.S_IFREG}}
	if f.IsLink() {
		var err error
		if p, err = f.call.resolve(f.Real, how{follow: true}); err != nil {
			return nil, err
		}
		defer p.close()
	}
	return p.open()
}

// Opened is a regular file that is copied as it was when it was opened. Path has links resolved.
type Opened struct {
	Path string
	Size int64

	fd     int
	before unix.Stat_t
}

func (p *place) open() (*Opened, error) {
	fd, err := p.openFile()
	return &Opened{p.path, p.st.Size, fd, p.st}, err
}

// Copy copies the file up to the size that it had. It fails if the file was written to meanwhile. One that only became longer, as a log
// does, wasn't: what was copied is what it had.
func (o *Opened) Copy(ctx context.Context, to io.Writer) error {
	n, err := sys.CopyPart(ctx, to, o.fd, sys.Span{End: o.Size})
	if err != nil {
		return sys.FileError("read", o.Path, err)
	}
	if n < o.Size {
		return o.changed()
	}
	return o.check(true)
}

func (o *Opened) changed() error {
	return sys.NewError(reason.FileChanged, "%s was written to meanwhile: try again.", sys.Quote(o.Path))
}

// check says whether the file was written to since it was opened, as far as its times and its size tell. Growing doesn't count if it
// may grow.
func (o *Opened) check(mayGrow bool) error {
	after, err := sys.Fstat(o.fd)
	switch {
	case err != nil:
		return sys.FileError("read", o.Path, err)
	case mayGrow && after.Size > o.Size:
		return nil
	case after.Size != o.Size, after.Mtim != o.before.Mtim:
		return o.changed()
	}
	return nil
}

// Close closes the file.
func (o *Opened) Close() { sys.Close(o.fd) }
