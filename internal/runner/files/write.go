package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/spec"
)

func (c *call) write() (_ Result, err error) {
	if size := int64(len(c.req.Content)); size > c.rules.MaxWriteBytes {
		return Result{}, newError(FileTooLarge, "The content has %d bytes: the policy's files.maxWriteBytes allows %d.", size,
			c.rules.MaxWriteBytes)
	}
	condition, err := conditionOf(c.req)
	if err != nil {
		return Result{}, err
	}
	mode, err := permissions(c.req, 0o644)
	if err != nil {
		return Result{}, err
	}
	p, err := c.resolve(c.req.Path, how{follow: true, parents: !condition.needsFile(), missing: true})
	if err != nil {
		return Result{}, err
	}
	defer p.close()
	defer func() {
		if err != nil {
			p.removeMade()
		}
	}()
	if err := p.needReplaceable(condition); err != nil {
		return Result{}, err
	}
	if p.exists() && c.req.Mode == nil {
		mode = p.st.Mode & 0o777
	}
	if err := c.replace(p, bytes.NewReader(c.req.Content), mode, condition); err != nil {
		return Result{}, err
	}
	return Result{
		Path: p.path, Bytes: int64(len(c.req.Content)), SHA256: sumOf(c.req.Content), Created: !p.exists(),
	}, nil
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// condition returns the condition of a request.
func conditionOf(r *spec.File) (condition, error) {
	if r.IfSHA256 == nil {
		return condition{}, nil
	}
	if *r.IfSHA256 == "" {
		return condition{absent: true}, nil
	}
	if sum, err := hex.DecodeString(*r.IfSHA256); err != nil || len(sum) != sha256.Size {
		return condition{}, newError(InvalidRequest, "The ifSHA256 is %s: it has 64 hexadecimal digits, or none if the file must not "+
			"exist.", quote(*r.IfSHA256))
	}
	return condition{sha256: strings.ToLower(*r.IfSHA256)}, nil
}

// needsFile says that the condition can only hold where a file is.
func (c condition) needsFile() bool { return c.sha256 != "" }

// needReplaceable refuses what can't become a file, and a file that the user may not write to: a rename would not ask.
func (p *place) needReplaceable(condition condition) error {
	switch {
	case p.isRoot():
		return newError(IsDirectory, "%s is an allowed directory: name a file in it.", quote(p.path))
	case !p.exists() && p.mustBeDir:
		return newError(IsDirectory, "%s ends like a directory: leave out the slash to write a file.", quote(p.asked))
	case !p.exists():
		return nil
	}
	if err := p.needFile(); err != nil {
		return err
	}
	if condition.absent {
		return newError(FileExists, "%s exists already: leave out ifSHA256 to replace it, or give the checksum of what is to be "+
			"replaced.", quote(p.path))
	}
	if err := unix.Faccessat(p.dir, p.name, unix.W_OK, unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fileError("write", p.path, err)
	}
	return nil
}

// readWhole reads a file that can be edited.
func (c *call) readWhole(p *place) ([]byte, error) {
	fd, st, err := p.openFile()
	if err != nil {
		return nil, err
	}
	defer closeAll(fd)
	if limit := min(c.rules.MaxReadBytes, c.rules.MaxWriteBytes); st.Size > limit {
		return nil, newError(FileTooLarge, "%s has %d bytes: the policy's files.maxReadBytes and files.maxWriteBytes let files up "+
			"to %d be edited.", quote(p.path), st.Size, limit)
	}
	content := bytes.NewBuffer(make([]byte, 0, st.Size))
	if _, err := copyPart(c.ctx, content, fd, span{0, st.Size}); err != nil {
		return nil, fileError("read", p.path, err)
	}
	return content.Bytes(), nil
}

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
		if p.fd, err = openBeneath(p.dir, p.name, pathFlags, 0); err == nil {
			if p.st, err = fstat(p.fd); err == nil {
				return p.existingDirectory()
			}
		}
		return Result{}, fileError("make the directory", p.path, err)
	default:
		p.removeMade()
		return Result{}, fileError("make the directory", p.path, err)
	}
	if err := chmodDir(p.dir, p.name, mode); err != nil {
		_ = unix.Unlinkat(p.dir, p.name, unix.AT_REMOVEDIR)
		p.removeMade()
		return Result{}, fileError("set the mode of", p.path, err)
	}
	return Result{Path: p.path, Created: true}, fileError("synchronize the directory of", p.path, syncDir(p.dir))
}

// existingDirectory is the result of making a directory that is there already.
func (p *place) existingDirectory() (Result, error) {
	if !isDir(&p.st) {
		return Result{}, newError(FileExists, "%s exists already and is a %s: choose another path.", quote(p.path), typeOf(p.st.Mode))
	}
	// An allowed directory that was missing was made on the way.
	return Result{Path: p.path, Created: len(p.made) > 0}, nil
}

// chmodDir sets the mode of a new directory, which its owner can open. It keeps the bit that gives the directory's group to
// what is made in it, which volumes with a group have.
func chmodDir(dir int, name string, mode uint32) error {
	fd, err := openBeneath(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	st, err := fstat(fd)
	if err != nil {
		return err
	}
	return unix.Fchmod(fd, mode|st.Mode&unix.S_ISGID)
}

// reader reads a file from its start up to its size.
type reader struct {
	c    *call
	fd   int
	part span
}

func (r *reader) Read(buffer []byte) (int, error) {
	if r.part.start >= r.part.end {
		return 0, io.EOF
	}
	n, err := readAt(r.c.ctx, r.fd, buffer[:min(int64(len(buffer)), r.part.end-r.part.start)], r.part.start)
	r.part.start += int64(n)
	if n == 0 && err == nil {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
