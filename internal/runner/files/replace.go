package files

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Temporary files have names like .toolcall-0123456789abcdef.tmp. Glob and Grep leave them out.
const temporaryPrefix, temporarySuffix, temporaryDigits = ".toolcall-", ".tmp", 16

func isTemporary(name string) bool {
	digits, hasPrefix := strings.CutPrefix(name, temporaryPrefix)
	digits, hasSuffix := strings.CutSuffix(digits, temporarySuffix)
	return hasPrefix && hasSuffix && len(digits) == temporaryDigits && strings.Trim(digits, "0123456789abcdef") == ""
}

// condition is what must hold when a file is replaced.
type condition struct {
	// absent says that nothing may be there; sha256 is the content that must be there, if it isn't empty.
	absent bool
	sha256 string
}

// replacement is a file in the making: it appears at its place as a whole, or not at all. Until then it has no name, where the file
// system can do that, so that nothing is left of it when the process is killed.
type replacement struct {
	place *place
	mode  uint32
	// condition is checked last.
	condition condition
	// temporary is the name in the same directory, fd the open file; empty and -1 when there is none.
	temporary string
	fd        int
}

func temporaryName() string {
	var random [temporaryDigits / 2]byte
	_, _ = rand.Read(random[:])
	return temporaryPrefix + hex.EncodeToString(random[:]) + temporarySuffix
}

// replace writes a file to a place. It leaves nothing behind after an error.
func (c *call) replace(p *place, content io.Reader, mode uint32, condition condition) (err error) {
	r := &replacement{place: p, mode: mode, condition: condition, fd: -1}
	defer func() {
		r.discard()
		if err != nil {
			err = fileError("write", p.path, err)
		}
	}()
	if err := r.create(); err != nil {
		return err
	}
	if err := r.fill(c.ctx, content); err != nil {
		return err
	}
	if err := c.commit(r); err != nil {
		return err
	}
	return p.sync()
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

// create makes the temporary file. Nobody else can read it before it has its owner and mode.
func (r *replacement) create() error {
	if fd, err := openBeneath(r.place.dir, ".", unix.O_WRONLY|unnamed, 0o600); err == nil {
		// It gets its name by a path that a container may lack.
		if unix.Access(pathOf(fd), unix.F_OK) == nil {
			r.fd = fd
			return nil
		}
		closeAll(fd)
	}
	// The other way says what is wrong, if that isn't the file system's lack.
	name := temporaryName()
	fd, err := openBeneath(r.place.dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	r.temporary, r.fd = name, fd
	return nil
}

// fill writes the content to the disk.
func (r *replacement) fill(ctx context.Context, content io.Reader) error {
	buffer := make([]byte, bufferBytes)
	for {
		n, err := content.Read(buffer)
		if err := writeAll(ctx, r.fd, buffer[:n]); err != nil {
			return err
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	return r.settle()
}

// settle gives the file its owner and mode, and synchronizes it to the disk.
func (r *replacement) settle() error {
	if err := r.own(); err != nil {
		return err
	}
	if err := ignoring(unix.Fsync(r.fd), unix.EINVAL); err != nil {
		return err
	}
	if r.temporary == "" {
		return nil
	}
	// Some file systems report only here that the quota is used up.
	fd := r.fd
	r.fd = -1
	return ignoring(unix.Close(fd), unix.EINTR)
}

// own gives the file its owner, where the user may, and its mode.
func (r *replacement) own() error {
	if r.place.exists() {
		st, err := fstat(r.fd)
		if err != nil {
			return err
		}
		if st.Uid != r.place.st.Uid || st.Gid != r.place.st.Gid {
			if unix.Fchown(r.fd, int(r.place.st.Uid), int(r.place.st.Gid)) != nil {
				_ = unix.Fchown(r.fd, -1, int(r.place.st.Gid))
			}
		}
	}
	return unix.Fchmod(r.fd, r.mode)
}

func writeAll(ctx context.Context, fd int, data []byte) error {
	for len(data) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := unix.Write(fd, data)
		if err != nil && err != unix.EINTR {
			return err
		}
		data = data[max(n, 0):]
	}
	return ctx.Err()
}

// locks keep two calls of this process from both changing what a name stands for after one of them compared it. Other
// processes have the time between the comparison and the rename.
var locks = func() (all [64]chan struct{}) {
	for i := range all {
		all[i] = make(chan struct{}, 1)
	}
	return all
}()

// lock takes the locks of places, always in the same order. Several names share a lock, which is taken once.
func lock(ctx context.Context, places ...*place) (unlock func(), err error) {
	var indexes []int
	for _, p := range places {
		i, err := p.lockIndex()
		if err != nil {
			return nil, err
		}
		indexes = append(indexes, i)
	}
	slices.Sort(indexes)
	var held []chan struct{}
	unlock = func() {
		for _, l := range held {
			<-l
		}
	}
	for _, i := range slices.Compact(indexes) {
		select {
		case locks[i] <- struct{}{}:
			held = append(held, locks[i])
		case <-ctx.Done():
			unlock()
			return nil, ctx.Err()
		}
	}
	return unlock, nil
}

// lockIndex returns which lock a name in a directory has.
func (p *place) lockIndex() (int, error) {
	st, err := fstat(p.dir)
	if err != nil {
		return 0, err
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, strconv.FormatUint(st.Dev, 16)+" "+strconv.FormatUint(st.Ino, 16)+" "+p.name)
	return int(h.Sum32() % uint32(len(locks))), nil
}

// commit gives the temporary file its name, if the condition holds.
func (c *call) commit(r *replacement) error {
	unlock, err := lock(c.ctx, r.place)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.check(r.place, r.condition); err != nil {
		return err
	}
	err = r.appear()
	if errors.Is(err, unix.EEXIST) {
		return newError(FileExists, "%s exists already: leave out ifSHA256 to replace it, or give the checksum of what is to be "+
			"replaced.", quote(r.place.path))
	}
	return err
}

// appear gives the file its name.
func (r *replacement) appear() error {
	if r.temporary == "" {
		err := r.link(r.place.name)
		if !errors.Is(err, unix.EEXIST) || r.condition.absent {
			return err
		}
		name := temporaryName()
		if err := r.link(name); err != nil {
			return err
		}
		r.temporary = name
	}
	err := rename(r.place.dir, r.temporary, r.place.dir, r.place.name, r.condition.absent)
	if err == nil {
		r.temporary = ""
	}
	return err
}

// link gives the file that has no name one that isn't there.
func (r *replacement) link(name string) error {
	return unix.Linkat(unix.AT_FDCWD, pathOf(r.fd), r.place.dir, name, unix.AT_SYMLINK_FOLLOW)
}

// unnamed makes a file without a name. Tests set it to something that no file system does.
var unnamed = unix.O_TMPFILE

func pathOf(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// check compares what is at a place with a condition. That nothing is there is checked by the rename itself.
func (c *call) check(p *place, condition condition) error {
	if condition.sha256 == "" {
		return nil
	}
	now := &place{path: p.path, dir: p.dir, name: p.name, fd: -1}
	err := now.lookAgain()
	defer func() { closeAll(now.fd) }()
	if errors.Is(err, unix.ENOENT) || err == nil && !p.exists() {
		return newError(FileChanged, "%s has no content that could have the checksum %s: it doesn't exist, or was made meanwhile; "+
			"read it, and decide again.", quote(p.path), condition.sha256)
	}
	if err != nil {
		return err
	}
	sum, err := c.sum(now)
	if err != nil {
		return err
	}
	if sum != condition.sha256 {
		return p.changed(condition)
	}
	return nil
}

// changed says that a file isn't the one of a condition. It doesn't say which sum the file has: see shownSum.
func (p *place) changed(condition condition) error {
	return newError(FileChanged, "%s doesn't have the checksum %s: it has changed; read it again, and decide again.", quote(p.path), condition.sha256)
}

// sum returns the checksum of a file.
func (c *call) sum(p *place) (string, error) {
	sum := sha256.New()
	if err := c.copyFile(sum, p); err != nil {
		return "", err
	}
	return hexSum(sum), nil
}

func (c *call) copyFile(to io.Writer, p *place) error {
	fd, st, err := p.openFile()
	if err != nil {
		return err
	}
	defer closeAll(fd)
	_, err = copyPart(c.ctx, to, fd, span{0, st.Size})
	return err
}

// rename renames, and replaces nothing if it is exclusive.
func rename(fromDir int, from string, toDir int, to string, exclusive bool) error {
	if !exclusive {
		return unix.Renameat(fromDir, from, toDir, to)
	}
	err := unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE)
	if err != unix.EINVAL && err != unix.ENOSYS {
		return err
	}
	// The file system can't: a second name is exclusive too, but directories have none.
	if linkErr := unix.Linkat(fromDir, from, toDir, to, 0); linkErr == unix.EEXIST {
		return linkErr
	} else if linkErr != nil {
		return err
	}
	return unix.Unlinkat(fromDir, from, 0)
}

// syncDir makes a rename durable. Some file systems can't, and a directory that can't be read can't be synchronized.
func syncDir(dir int) error {
	fd, err := openBeneath(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return ignoring(err, unix.EACCES)
	}
	defer unix.Close(fd)
	return ignoring(unix.Fsync(fd), unix.EINVAL, unix.EROFS)
}

func ignoring(err error, harmless ...error) error {
	for _, h := range harmless {
		if errors.Is(err, h) {
			return nil
		}
	}
	return err
}
