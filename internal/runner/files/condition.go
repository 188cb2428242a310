package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash/maphash"
	"io"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/spec"
)

// condition is what must hold when a file is replaced.
type condition struct {
	// absent says that nothing may be there, present that something must; sha256 is the content that must be there, if it isn't empty.
	absent, present bool
	sha256          string
}

// conditionOf returns the condition of a request.
func conditionOf(r *spec.File) (condition, error) {
	if r.IfSHA256 == nil {
		return condition{}, nil
	}
	switch *r.IfSHA256 {
	case "":
		return condition{absent: true}, nil
	case spec.AnySHA256:
		return condition{present: true}, nil
	}
	if sum, err := hex.DecodeString(*r.IfSHA256); err != nil || len(sum) != sha256.Size {
		return condition{}, sys.NewError(reason.InvalidRequest, "The ifSHA256 is %s: it has 64 hexadecimal digits, or none if the file must not "+
			"exist.", sys.Quote(*r.IfSHA256))
	}
	return condition{sha256: strings.ToLower(*r.IfSHA256)}, nil
}

// needsFile says that the condition can only hold where a file is.
func (c condition) needsFile() bool { return c.sha256 != "" || c.present }

// needReplaceable refuses what can't become a file.
func (p *place) needReplaceable(condition condition) error {
	switch {
	case p.isRoot():
		return sys.NewError(reason.IsDirectory, "%s is an allowed directory: name a file in it.", sys.Quote(p.path))
	case !p.exists() && p.mustBeDir:
		return sys.NewError(reason.IsDirectory, "%s ends like a directory: leave out the slash to write a file.", sys.Quote(p.path+"/"))
	case !p.exists() && condition.present:
		return p.isNotThere()
	case !p.exists() && condition.needsFile():
		return sys.NewError(reason.FileChanged, "%s doesn't exist, so that it can't have the checksum %s.", sys.Quote(p.path), condition.sha256)
	case !p.exists():
		return nil
	}
	if err := needFile(p.path, &p.st); err != nil {
		return err
	}
	if condition.absent {
		return p.existsAlready()
	}
	return nil
}

// needWritable refuses a file that the user may not write to: a rename would not ask.
func (p *place) needWritable() error {
	if !p.exists() {
		return nil
	}
	return sys.FileError("write", p.path, unix.Faccessat(p.dir, p.name, unix.W_OK, unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW))
}

// existsAlready refuses to replace what a request may only make.
func (p *place) existsAlready() error {
	return sys.NewError(reason.FileExists, "%s exists already: leave out ifSHA256 to replace it, or give the checksum of what is to be "+
		"replaced.", sys.Quote(p.path))
}

// isNotThere refuses what a request may only do to a file that is there.
func (p *place) isNotThere() error {
	return sys.NewError(reason.FileChanged, "%s doesn't exist, and the request is only for a file that does.", sys.Quote(p.path))
}

// check compares what is at a place with a condition. That nothing is there is checked by the rename itself.
func (c *call) check(p *place, condition condition) error {
	if condition.present && unix.Faccessat(p.dir, p.name, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) == unix.ENOENT {
		return p.isNotThere()
	}
	if condition.sha256 == "" {
		return nil
	}
	sum, now := sha256.New(), *p
	err := error(unix.ENOENT)
	if p.exists() {
		err = c.copyFile(sum, &now)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return sys.NewError(reason.FileChanged, "%s has no content that could have the checksum %s: it doesn't exist, or was made meanwhile; "+
			"read it, and decide again.", sys.Quote(p.path), condition.sha256)
	case err != nil:
		return err
	case hexSum(sum) != condition.sha256:
		return p.changed(condition)
	}
	return nil
}

// changed says that a file isn't the one of a condition. It doesn't say which sum the file has: see shownSum.
func (p *place) changed(condition condition) error {
	return sys.NewError(reason.FileChanged, "%s doesn't have the checksum %s: it has changed; read it again, and decide again.", sys.Quote(p.path), condition.sha256)
}

func (c *call) copyFile(to io.Writer, p *place) error {
	from, err := p.open()
	if err != nil {
		return err
	}
	defer from.Close()
	return from.Copy(c.ctx, to)
}

// locks keep two calls of this process from both changing what a name stands for, in any directory, after one of them compared it. Other
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
		indexes = append(indexes, int(maphash.String(lockSeed, p.name)%uint64(len(locks))))
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

var lockSeed = maphash.MakeSeed()

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
	fd, err := sys.OpenBeneath(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return sys.Ignoring(err, unix.EACCES)
	}
	defer unix.Close(fd)
	return sys.Ignoring(unix.Fsync(fd), unix.EINVAL, unix.EROFS)
}
