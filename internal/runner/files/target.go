package files

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/spec"
)

// Temporary files have names like .toolcall-0123456789abcdef.tmp. Glob and Grep leave them out.
const temporaryPrefix, temporarySuffix = ".toolcall-", ".tmp"

var temporaryGlob = temporaryPrefix + strings.Repeat("[0-9a-f]", 16) + temporarySuffix

func isTemporary(name string) bool {
	is, _ := path.Match(temporaryGlob, name)
	return is
}

func temporaryName() string {
	return fmt.Sprintf(temporaryPrefix+"%016x"+temporarySuffix, rand.Uint64())
}

// Target is a file in the making: it appears at its place as a whole, or not at all. Until then it has no name, where the file
// system can do that, so that nothing is left of it when the process is killed. Whoever has it calls its methods one at a time,
// and Close at the end, which leaves nothing of what wasn't committed.
type Target struct {
	c     *call
	place *place
	mode  uint32
	// condition is checked last.
	condition condition
	// temporary is the name in the same directory, fd the open file; empty and -1 when there is none.
	temporary string
	fd        int

	sum  hash.Hash
	size int64
	// committed says that the file has its name.
	committed bool
}

// OpenTarget begins to write the file that Path of a request names, below Rules.WritePaths. It makes its parents. Mode and
// IfSHA256 of the request count as in a Write.
func OpenTarget(ctx context.Context, rules *Rules, r *spec.File) (*Target, error) {
	c, err := newCall(ctx, rules, r, true)
	if err != nil {
		return nil, err
	}
	return c.openTarget()
}

// openTarget begins to write what a request names.
func (c *call) openTarget() (*Target, error) {
	condition, err := conditionOf(c.req)
	if err != nil {
		return nil, err
	}
	mode, err := permissions(c.req, 0o644)
	if err != nil {
		return nil, err
	}
	p, err := c.resolve(c.req.Path, how{follow: true, parents: !condition.needsFile(), missing: true})
	if err != nil {
		return nil, err
	}
	if p.exists() && c.req.Mode == nil {
		mode = p.st.Mode & 0o777
	}
	t := c.newTarget(p, mode, condition)
	err = p.needReplaceable(condition)
	if err == nil && !c.unpacks {
		err = p.needWritable()
	}
	if err == nil {
		err = t.create()
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (c *call) newTarget(p *place, mode uint32, condition condition) *Target {
	return &Target{c: c, place: p, mode: mode, condition: condition, fd: -1, sum: sha256.New()}
}

// replace writes a file to a place. It leaves nothing behind after an error.
func (c *call) replace(p *place, content io.Reader, mode uint32, condition condition) error {
	t := c.newTarget(p, mode, condition)
	defer t.discard()
	if err := t.create(); err != nil {
		return err
	}
	if _, err := io.CopyBuffer(t, content, make([]byte, sys.BufferBytes)); err != nil {
		return sys.FileError("write", p.path, err)
	}
	_, err := t.Commit()
	return err
}

func (c *call) write() (Result, error) {
	t, err := c.openTarget()
	if err != nil {
		return Result{}, err
	}
	defer t.Close()
	if _, err := t.Write(c.req.Content); err != nil {
		return Result{}, err
	}
	return t.Commit()
}

// create makes the temporary file. Nobody else can read it before it has its owner and mode.
func (t *Target) create() error {
	if fd, err := sys.OpenBeneath(t.place.dir, ".", unix.O_WRONLY|unnamed, 0o600); err == nil {
		// It gets its name by a path that a container may lack.
		if unix.Access(pathOf(fd), unix.F_OK) == nil {
			t.fd = fd
			return nil
		}
		sys.Close(fd)
	}
	// The other way says what is wrong, if that isn't the file system's lack.
	name := temporaryName()
	fd, err := sys.OpenBeneath(t.place.dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return sys.FileError("write", t.place.path, err)
	}
	t.temporary, t.fd = name, fd
	return nil
}

// Write adds bytes.
func (t *Target) Write(p []byte) (int, error) {
	if int64(len(p)) > t.c.rules.MaxWriteBytes-t.size {
		return 0, sys.NewError(reason.FileTooLarge, "The content has more bytes than the policy's files.maxWriteBytes allows: %s.", boundText(t.c.rules.MaxWriteBytes))
	}
	for rest := p; len(rest) > 0; {
		if err := t.c.ctx.Err(); err != nil {
			return 0, err
		}
		n, err := unix.Write(t.fd, rest)
		if err != nil && err != unix.EINTR {
			return 0, sys.FileError("write", t.place.path, err)
		}
		rest = rest[max(n, 0):]
	}
	t.sum.Write(p)
	t.size += int64(len(p))
	return len(p), t.c.ctx.Err()
}

// Commit synchronizes the file to the disk and gives it its name, if the condition holds.
func (t *Target) Commit() (Result, error) {
	err := t.settle()
	if err == nil {
		err = t.commit()
	}
	if err != nil {
		return Result{}, sys.FileError("write", t.place.path, err)
	}
	t.committed = true
	f := reason.File{Path: t.place.path, Bytes: new(t.size), SHA256: hexSum(t.sum), Created: !t.place.exists()}
	return Result{File: f}, sys.FileError("synchronize the directory of", t.place.path, t.place.sync())
}

// settle gives the file its owner, where the user may, and its mode, and synchronizes it to the disk.
func (t *Target) settle() error {
	if is := &t.place.st; t.place.exists() && unix.Fchown(t.fd, int(is.Uid), int(is.Gid)) != nil {
		_ = unix.Fchown(t.fd, -1, int(is.Gid))
	}
	if err := unix.Fchmod(t.fd, t.mode); err != nil {
		return err
	}
	if err := sys.Ignoring(unix.Fsync(t.fd), unix.EINVAL); err != nil {
		return err
	}
	if t.temporary == "" {
		return nil
	}
	// Some file systems report only here that the quota is used up.
	fd := t.fd
	t.fd = -1
	return sys.Ignoring(unix.Close(fd), unix.EINTR)
}

// commit gives the file its name, if the condition holds.
func (t *Target) commit() error {
	unlock, err := lock(t.c.ctx, t.place)
	if err != nil {
		return err
	}
	defer unlock()
	if err := t.c.check(t.place, t.condition); err != nil {
		return err
	}
	if err = t.appear(); errors.Is(err, unix.EEXIST) {
		return t.place.existsAlready()
	}
	return err
}

// appear gives the file its name.
func (t *Target) appear() error {
	if t.temporary == "" {
		err := t.link(t.place.name)
		if !errors.Is(err, unix.EEXIST) || t.condition.absent {
			return err
		}
		name := temporaryName()
		if err := t.link(name); err != nil {
			return err
		}
		t.temporary = name
	}
	err := rename(t.place.dir, t.temporary, t.place.dir, t.place.name, t.condition.absent)
	if err == nil {
		t.temporary = ""
	}
	return err
}

// link gives the file that has no name one that isn't there.
func (t *Target) link(name string) error {
	return unix.Linkat(unix.AT_FDCWD, pathOf(t.fd), t.place.dir, name, unix.AT_SYMLINK_FOLLOW)
}

// unnamed makes a file without a name. Tests set it to something that no file system does.
var unnamed = unix.O_TMPFILE

func pathOf(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// Close ends the writing. What wasn't committed leaves nothing behind.
func (t *Target) Close() {
	t.discard()
	if !t.committed {
		t.place.removeMade()
	}
	t.place.close()
}

// discard removes what has no name yet.
func (t *Target) discard() {
	sys.Close(t.fd)
	t.fd = -1
	if t.temporary != "" {
		_ = unix.Unlinkat(t.place.dir, t.temporary, 0)
		t.temporary = ""
	}
}

// sync makes what has the name, and the directories that were made for it, durable.
func (p *place) sync() error {
	for _, m := range p.made {
		if err := syncDir(m.dir); err != nil {
			return err
		}
	}
	return syncDir(p.dir)
}
