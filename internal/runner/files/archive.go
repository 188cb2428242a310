package files

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/spec"
)

// Bounds of archives, besides MaxDepth.
const (
	// MaxArchiveEntries is how many files, directories and links an archive has.
	MaxArchiveEntries = 100_000
	archiveBuffer     = 128 << 10
)

// Pack writes the directory that Path of a request names, below Rules.ReadPaths, as a tar archive. Names in it are relative
// to the directory. Links are packed as links. What is denied, and what is neither file, directory nor link, is left out.
func Pack(ctx context.Context, rules *Rules, r *spec.File, to io.Writer) error {
	c, err := newCall(ctx, rules, r, false)
	if err != nil {
		return err
	}
	p, err := c.resolve(r.Path, how{follow: true})
	if err != nil {
		return err
	}
	defer p.close()
	if !sys.IsDir(&p.st) {
		return sys.NewError(reason.NotDirectory, "%s is no directory: leave out archive to get a file.", sys.Quote(p.path))
	}
	buffered := bufio.NewWriterSize(to, archiveBuffer)
	a := &packing{c: c, to: tar.NewWriter(buffered), top: p.path}
	w := c.underRules(p)
	w.hidden = func(e dirent) bool { return isTemporary(e.name) }
	err = w.walk(p, func(string, int) bool { return true }, a.entry)
	switch {
	case err != nil:
		return err
	case w.truncated || w.skipped.Deep > 0:
		return sys.NewError(reason.NotSupported, "%s has too many names, or directories more than %d levels deep: get a directory further down.", sys.Quote(p.path), MaxDepth)
	case w.skipped.Unreadable > 0:
		return sys.NewError(reason.PermissionDenied, "%d directories below %s can't be read: get the others one by one.", w.skipped.Unreadable, sys.Quote(p.path))
	}
	if err := a.to.Close(); err != nil {
		return err
	}
	return buffered.Flush()
}

// packing is an archive that is written.
type packing struct {
	c       *call
	to      *tar.Writer
	top     string
	entries int
}

// entry packs what has a name in an open directory.
func (a *packing) entry(relative string, dir *directory, e dirent) error {
	p := &place{path: path.Join(a.top, relative), dir: dir.fd, name: e.name}
	err := unix.Fstatat(dir.fd, e.name, &p.st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return sys.FileError("look at", p.path, err)
	}
	if a.entries++; a.entries > MaxArchiveEntries {
		return sys.NewError(reason.NotSupported, "there are more than %d files and directories: get a directory further down.", MaxArchiveEntries)
	}
	h := &tar.Header{Name: relative, Mode: int64(p.st.Mode & 0o777), ModTime: time.Unix(p.st.Mtim.Unix()).Truncate(time.Second), Format: tar.FormatPAX}
	switch typeOf(p.st.Mode) {
	case TypeDirectory:
		h.Typeflag, h.Name = tar.TypeDir, relative+"/"
		return a.to.WriteHeader(h)
	case TypeLink:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = sys.ReadLink(dir.fd, e.name); err != nil {
			return sys.FileError("read the symbolic link", p.path, err)
		}
		return a.to.WriteHeader(h)
	case TypeFile:
		h.Typeflag = tar.TypeReg
		return a.file(p, h)
	default:
		return nil
	}
}

// file packs a regular file as long as it is when it is opened.
func (a *packing) file(p *place, h *tar.Header) error {
	from, err := p.open()
	if err != nil {
		return err
	}
	defer from.Close()
	if from.Size > a.c.rules.MaxReadBytes {
		return sys.NewError(reason.FileTooLarge, "%s has %d bytes: the policy's files.maxReadBytes allows %s.", sys.Quote(p.path), from.Size, boundText(a.c.rules.MaxReadBytes))
	}
	h.Size = from.Size
	if err := a.to.WriteHeader(h); err != nil {
		return err
	}
	return from.Copy(a.c.ctx, a.to)
}

// Unpack writes what is in a tar archive below the directory that Path of a request names, which is made if it isn't there.
// Each file appears whole or not at all; the archive as a whole doesn't. Every entry is held to the rules by itself, and leads nowhere out
// of the directory, over links neither. An entry whose name leads out of it, a link whose text does, and one of another kind than file,
// directory or link, end it.
func Unpack(ctx context.Context, rules *Rules, r *spec.File, from io.Reader) error {
	c, err := newCall(ctx, rules, r, true)
	if err != nil {
		return err
	}
	buffered := bufio.NewReaderSize(from, archiveBuffer)
	if _, err := buffered.Peek(1); errors.Is(err, io.EOF) {
		// The library takes nothing for an archive without entries.
		return sys.NewError(reason.InvalidRequest, "The archive is empty: send a tar archive, which ends with two blocks of zeros even without entries.")
	}
	made, err := c.makeDirectory()
	if err != nil {
		return err
	}
	c.rules.roots, c.unpacks = []string{made.Path}, true
	archive := tar.NewReader(buffered)
	for entries := 0; ; entries++ {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return sys.NewError(reason.InvalidRequest, "This is no tar archive from its entry %d on: %v.", entries+1, err)
		case entries >= MaxArchiveEntries:
			return sys.NewError(reason.InvalidRequest, "The archive has more than %d entries: send it in parts.", MaxArchiveEntries)
		}
		if err := c.unpackEntry(h, archive); err != nil {
			return err
		}
	}
}

// unpackEntry writes one entry below the only directory that the rules allow.
func (c *call) unpackEntry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := entryName(h)
	if err != nil {
		return err
	}
	mode := uint32(h.Mode) & 0o777
	c.req = &spec.File{Path: path.Join(c.rules.roots[0], name), Mode: &mode}
	switch h.Typeflag {
	case tar.TypeDir:
		// What follows has to be written into it.
		mode |= 0o700
		_, err = c.makeDirectory()
	case tar.TypeReg:
		err = c.unpackFile(content)
	case tar.TypeSymlink:
		if strings.HasPrefix(h.Linkname, "/") || strings.ContainsRune(h.Linkname, 0) ||
			!filepath.IsLocal(path.Join(path.Dir(name), h.Linkname)) || !filepath.IsLocal(name+"/../"+h.Linkname) {
			return sys.NewError(reason.PathNotAllowed, "The archive's link %s leads to %s, out of its directory: leave it out.", sys.Quote(h.Name), sys.Quote(h.Linkname))
		}
		err = c.makeLink(h.Linkname)
	case tar.TypeLink:
		return sys.NewError(reason.PathNotAllowed, "The archive's entry %s is a hard link: pack the file itself, as with --hard-dereference.",
			sys.Quote(h.Name))
	default:
		return sys.NewError(reason.PathNotAllowed, "The archive's entry %s is neither a file nor a directory nor a symbolic link: leave it out.", sys.Quote(h.Name))
	}
	if reasonIs(err, reason.PathNotAllowed) {
		return sys.NewError(reason.PathNotAllowed, "The archive's entry %s can't be written: %s", sys.Quote(h.Name), err)
	}
	return err
}

// entryName is the name of an entry below its archive's directory, or "." for that itself.
func entryName(h *tar.Header) (string, error) {
	isSparse := h.Typeflag == tar.TypeGNUSparse
	for key := range h.PAXRecords {
		isSparse = isSparse || strings.HasPrefix(key, "GNU.sparse")
	}
	if isSparse {
		return "", sys.NewError(reason.NotSupported, "The archive's entry %s is sparse: pack it without --sparse.", sys.Quote(h.Name))
	}
	if strings.ContainsRune(h.Name, 0) || !filepath.IsLocal(h.Name) {
		return "", sys.NewError(reason.PathNotAllowed, "The archive's entry %s has a name that leads out of its directory: leave it out.", sys.Quote(h.Name))
	}
	if strings.Count(h.Name, "/") > MaxDepth || len(h.Name) > maxPathBytes {
		return "", sys.NewError(reason.InvalidRequest, "The archive's entry %s is too deep, or its name too long.", sys.Quote(h.Name))
	}
	return path.Clean(h.Name), nil
}

func (c *call) unpackFile(content io.Reader) error {
	t, err := c.openTarget()
	if err != nil {
		return err
	}
	defer t.Close()
	_, err = io.CopyBuffer(t, content, make([]byte, sys.BufferBytes))
	if refused := (*Error)(nil); errors.As(err, &refused) || c.ctx.Err() != nil {
		return err
	}
	if err != nil {
		return sys.NewError(reason.InvalidRequest, "The archive breaks off in %s: %v.", sys.Quote(c.req.Path), err)
	}
	_, err = t.Commit()
	return err
}

// makeLink makes a symbolic link where nothing is, or another link.
func (c *call) makeLink(target string) error {
	p, err := c.resolve(c.req.Path, how{parents: true, missing: true, itself: true})
	if err != nil {
		return err
	}
	defer p.close()
	if p.isRoot() || p.exists() && typeOf(p.st.Mode) != TypeLink {
		return sys.NewError(reason.FileExists, "%s exists already, and the archive has a link there: remove it first.", sys.Quote(p.path))
	}
	if !p.exists() {
		// Without a rename, which some file systems can't make without replacing what may be there by then.
		return sys.FileError("make the symbolic link", p.path, unix.Symlinkat(target, p.dir, p.name))
	}
	temporary := temporaryName()
	if err = unix.Symlinkat(target, p.dir, temporary); err == nil {
		if err = unix.Renameat(p.dir, temporary, p.dir, p.name); err != nil {
			_ = unix.Unlinkat(p.dir, temporary, 0)
		}
	}
	return sys.FileError("replace the symbolic link", p.path, err)
}
