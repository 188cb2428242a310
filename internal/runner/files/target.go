package files

import (
	"context"
	"crypto/sha256"
	"hash"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/spec"
)

// Target is a file that is written part by part, and appears whole or not at all. Whoever has it calls its methods one at a
// time, and Close at the end, which leaves nothing of what wasn't committed.
type Target struct {
	c         *call
	place     *place
	making    *replacement
	condition condition
	sum       hash.Hash
	size      int64
	// committed says that the file has its name.
	committed bool
}

// OpenTarget begins to write the file that Path of a request names, below Rules.WritePaths. It makes its parents. Mode and
// IfSHA256 of the request count as in a Write.
func OpenTarget(ctx context.Context, rules *Rules, r *spec.File) (_ *Target, err error) {
	c, err := newCall(ctx, rules, r, true)
	if err != nil {
		return nil, err
	}
	condition, err := conditionOf(r)
	if err != nil {
		return nil, err
	}
	mode, err := permissions(r, 0o644)
	if err != nil {
		return nil, err
	}
	p, err := c.resolve(r.Path, how{follow: true, parents: !condition.needsFile(), missing: true})
	if err != nil {
		return nil, err
	}
	t := &Target{c: c, place: p, condition: condition, sum: sha256.New()}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	if err := p.needReplaceable(condition); err != nil {
		return nil, err
	}
	if condition.needsFile() && !p.exists() {
		return nil, newError(FileChanged, "%s doesn't exist, so that it can't have the checksum %s.", quote(p.path), condition.sha256)
	}
	if p.exists() && r.Mode == nil {
		mode = p.st.Mode & 0o777
	}
	t.making = &replacement{place: p, mode: mode, condition: condition, fd: -1}
	return t, fileError("write", p.path, t.making.create())
}

// Path is what is written, with links resolved.
func (t *Target) Path() string { return t.place.path }

// Write adds bytes.
func (t *Target) Write(ctx context.Context, p []byte) error {
	if int64(len(p)) > t.c.rules.MaxWriteBytes-t.size {
		return newError(FileTooLarge, "The content has more than the %d bytes that the policy's files.maxWriteBytes allows.", t.c.rules.MaxWriteBytes)
	}
	if err := writeAll(ctx, t.making.fd, p); err != nil {
		return fileError("write", t.place.path, err)
	}
	t.sum.Write(p)
	t.size += int64(len(p))
	return nil
}

// Commit synchronizes the file to the disk and gives it its name, if the condition holds.
func (t *Target) Commit(ctx context.Context) (Result, error) {
	t.c.ctx = ctx
	if err := t.making.finish(t.c); err != nil {
		return Result{}, fileError("write", t.place.path, err)
	}
	t.committed = true
	return Result{Path: t.place.path, Bytes: t.size, SHA256: hexSum(t.sum), Created: !t.place.exists()},
		fileError("synchronize the directory of", t.place.path, t.place.sync())
}

// Close ends the writing. What wasn't committed leaves nothing behind.
func (t *Target) Close() {
	if r := t.making; r != nil {
		r.discard()
	}
	if !t.committed {
		t.place.removeMade()
	}
	t.place.close()
}

// finish writes what has come to the disk, and commits it.
func (r *replacement) finish(c *call) error {
	if err := r.settle(); err != nil {
		return err
	}
	return c.commit(r)
}

// discard removes what has no name yet.
func (r *replacement) discard() {
	closeAll(r.fd)
	r.fd = -1
	if r.temporary != "" {
		_ = unix.Unlinkat(r.place.dir, r.temporary, 0)
		r.temporary = ""
	}
}
