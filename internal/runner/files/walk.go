package files

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/patterns"
	"toolcall.dev/operator/internal/runner/files/sys"
)

// Bounds of one walk.
const (
	maxEntries = 2_000_000
	// maxHeldBytes bounds the names that are held, those of the directory and of all above it.
	maxHeldBytes = 16 << 20
	entryBytes   = 48
)

// dirent is an entry as the kernel lists it.
type dirent struct {
	// name ends with a slash where a walk goes down into the directory.
	name string
	// kind is one of unix.DT_*. It may have changed since.
	kind byte
}

var direntBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// readDir calls entry for each entry of an open directory, in the kernel's order.
func readDir(ctx context.Context, fd int, entry func(dirent) error) error {
	buffer := direntBuffers.Get().(*[]byte)
	defer direntBuffers.Put(buffer)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := unix.Getdents(fd, *buffer)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ENOENT:
			// The directory was removed meanwhile.
			return nil
		case err != nil || n <= 0:
			return err
		}
		for rest := (*buffer)[:n]; len(rest) > nameOffset; {
			size := binary.NativeEndian.Uint16(rest[16:])
			name, _, _ := strings.Cut(string(rest[nameOffset:size]), "\x00")
			kind := rest[18]
			rest = rest[size:]
			if name == "." || name == ".." {
				continue
			}
			if err := entry(dirent{name, kind}); err != nil {
				return err
			}
		}
	}
}

// nameOffset is where the name starts in a struct linux_dirent64.
const nameOffset = 19

// directory is an open directory. It is closed with its last user.
type directory struct {
	fd    int
	users atomic.Int32
}

func (d *directory) retain() *directory { d.users.Add(1); return d }

func (d *directory) release() {
	if d.users.Add(-1) == 0 {
		sys.Close(d.fd)
	}
}

// walker visits a tree in the order of its paths' bytes, by descriptors and without following links.
type walker struct {
	c *call
	// denied says of a path below the directory that it is denied.
	denied func(relative string) bool
	// isOwn says of one that it is the runner's own, which is left out without a word: no policy can change that.
	isOwn func(relative string) bool
	// hidden says of an entry that it is left out.
	hidden func(dirent) bool
	// ignored says what .gitignore files leave out; nil if nothing does.
	ignored *ignored

	skipped Skipped
	// truncated says that the tree is larger than a walk.
	truncated bool

	// top is the path of the directory, and descend and visit are those of walk.
	top           string
	descend       func(relative string, depth int) bool
	visit         visit
	devices       sys.Devices
	entries, held int
}

// visit is called for each entry.
type visit func(relative string, dir *directory, e dirent) error

// walk visits what is below a directory. It goes down where descend says so.
func (w *walker) walk(p *place, descend func(relative string, depth int) bool, visit visit) error {
	if !sys.IsDir(&p.st) {
		return sys.NewError(reason.NotDirectory, "%s isn't a directory: name the directory that it is in.", sys.Quote(p.path))
	}
	dir, err := w.open(p.fd, ".")
	if err != nil {
		return sys.FileError("open", p.path, err)
	}
	defer dir.release()
	w.top, w.descend, w.visit = p.path, descend, visit
	return w.walkDir(dir, "", 1)
}

// open opens a directory, unless it is the kernel's own.
func (w *walker) open(at int, name string) (*directory, error) {
	fd, err := sys.OpenBeneath(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if _, err := lookAt(fd, name, name, &w.devices); err != nil {
		return nil, err
	}
	return (&directory{fd: fd}).retain(), nil
}

// walkDir visits the entries of a directory, and goes down.
func (w *walker) walkDir(dir *directory, prefix string, depth int) error {
	defer w.ignored.enter(dir, prefix)()
	entries, err := w.list(dir, prefix, depth)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := w.c.ctx.Err(); err != nil {
			return err
		}
		if name, isDescent := strings.CutSuffix(e.name, "/"); isDescent {
			err = w.walkChild(dir, prefix+name, name, depth)
		} else {
			err = w.visit(prefix+name, dir, e)
		}
		if err != nil {
			return err
		}
		w.held -= len(e.name) + entryBytes
	}
	return nil
}

// walkChild goes down into a directory, unless it is left out.
func (w *walker) walkChild(dir *directory, relative, name string, depth int) error {
	if depth >= MaxDepth || len(w.top)+1+len(relative) > maxPathBytes {
		w.skipped.Deep++
		return nil
	}
	child, err := w.open(dir.fd, name)
	switch {
	case reasonIs(err, reason.PathNotAllowed):
		w.skipped.Denied++
		return nil
	case err != nil:
		w.skipped.Unreadable++
		return nil
	}
	defer child.release()
	return w.walkDir(child, relative+"/", depth+1)
}

// list returns the entries of a directory that aren't left out, sorted. One that the walk goes down into comes again, with a slash, where
// what is in it belongs: "a-b" is before "a/b".
func (w *walker) list(dir *directory, prefix string, depth int) ([]dirent, error) {
	var entries []dirent
	err := readDir(w.c.ctx, dir.fd, func(e dirent) error {
		if e.kind == unix.DT_UNKNOWN {
			var st unix.Stat_t
			if err := unix.Fstatat(dir.fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				w.skipped.Unreadable++
				return nil
			}
			e.kind = kindOf(st.Mode)
		}
		if w.hidden != nil && w.hidden(e) {
			return nil
		}
		if w.entries++; w.entries > maxEntries || w.held > maxHeldBytes {
			w.truncated = true
			return errEnough
		}
		if w.ignored.has(prefix+e.name, e.kind == unix.DT_DIR) {
			return nil
		}
		if w.isOwn != nil && w.isOwn(prefix+e.name) {
			return nil
		}
		if w.denied != nil && w.denied(prefix+e.name) {
			w.skipped.Denied++
			return nil
		}
		hold := func(e dirent) {
			w.held += len(e.name) + entryBytes
			entries = append(entries, e)
		}
		if hold(e); e.kind == unix.DT_DIR && w.descend(prefix+e.name, depth) {
			hold(dirent{e.name + "/", e.kind})
		}
		return nil
	})
	switch {
	case errors.Is(err, errEnough):
		err = nil
	case err != nil && w.c.ctx.Err() == nil:
		w.skipped.Unreadable++
		err = nil
	}
	slices.SortFunc(entries, func(a, b dirent) int { return cmp.Compare(a.name, b.name) })
	return entries, err
}

// errEnough ends a walk early. No caller of Do sees it.
var errEnough = errors.New("there are enough results")

// finish completes the result of a walk that ended with err.
func (w *walker) finish(p *place, out *results, err error) (Result, error) {
	result, err := out.finish(p, err)
	result.Skipped = w.skipped
	result.Truncated = result.Truncated || w.truncated
	return result, err
}

// walkGlob visits what a glob matches below a directory.
func (w *walker) walkGlob(p *place, glob *patterns.Glob, visit visit) error {
	return w.walk(p, glob.MayMatchBelow, func(relative string, dir *directory, e dirent) error {
		if !glob.IsMatch(relative) {
			return nil
		}
		return visit(relative, dir, e)
	})
}

// searching returns the walker of a Glob or a Grep. Both leave out what git keeps its data in, and the temporary files of this package.
func (c *call) searching(p *place) *walker {
	w := c.underRules(p)
	w.hidden = func(e dirent) bool { return e.name == ".git" || e.kind == unix.DT_REG && isTemporary(e.name) }
	w.respectGitIgnore(p)
	return w
}

// underRules returns the walker of a request for what is below a place.
func (c *call) underRules(p *place) *walker {
	w := &walker{c: c}
	if !c.rules.deniesNothingBelow(p.path) {
		w.denied = func(relative string) bool { return c.rules.isDenied(path.Join(p.path, relative)) }
		w.isOwn = func(relative string) bool { return c.rules.isRunners(path.Join(p.path, relative)) }
	}
	return w
}
