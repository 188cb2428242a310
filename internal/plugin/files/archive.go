package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

func (o *copying) note(format string, args ...any) {
	o.progress.end()
	fmt.Fprintln(o.ErrOut, "note: "+terminal.SafeLine(fmt.Sprintf(format, args...)))
}

// downloadDirectory extracts a directory beside its place, and moves it there once it is complete.
func (o *copying) downloadDirectory(ctx context.Context, from, to place) error {
	name := filepath.Clean(to.path)
	if info, err := os.Stat(name); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is a file: name a directory", name)
		}
		if name, err = localTarget(from.path, to.path); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(name); err == nil {
		return fmt.Errorf("%s is there already: move it away, or name another directory", name)
	}
	temporary := cli.BesideName(name)
	if err := os.Mkdir(temporary, 0o777); err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	root, err := os.OpenRoot(temporary)
	if err != nil {
		return err
	}
	defer root.Close()
	body, err := o.Files.OpenArchive(ctx, o.file(from))
	if err != nil {
		return err
	}
	defer body.Close()
	counted := &countingReader{Reader: body, progress: o.progress.report}
	if err := extract(root, counted, o.note); err != nil {
		return err
	}
	return os.Rename(temporary, name)
}

// countingReader reports what is read, and keeps the end of it.
type countingReader struct {
	io.Reader
	progress func(done, total int64)
	done     int64
	tail     []byte
}

// tarEnd is how many bytes of zeros end an archive.
const tarEnd = 1024

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.done += int64(n)
	c.progress(c.done, -1)
	c.tail = append(c.tail, p[:n]...)
	c.tail = append(c.tail[:0], c.tail[max(0, len(c.tail)-tarEnd):]...)
	return n, err
}

// isWhole says whether what was read ends as archives do.
func (c *countingReader) isWhole() bool { return bytes.Equal(c.tail, make([]byte, tarEnd)) }

// extract writes what an archive has below root, and nothing elsewhere, whatever its entries are named.
func extract(root *os.Root, archive *countingReader, note func(format string, args ...any)) error {
	var links []string
	reader := tar.NewReader(archive)
	for {
		header, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		name := path.Clean(strings.TrimSuffix(header.Name, "/"))
		if !filepath.IsLocal(filepath.FromSlash(name)) {
			return fmt.Errorf("the archive has an entry that leads out of the directory: %q", header.Name)
		}
		if header.Typeflag == tar.TypeSymlink {
			links = append(links, name)
		}
		if err := extractEntry(root, name, header, reader, note); err != nil {
			return fmt.Errorf("write %q: %w", name, err)
		}
	}
	if _, err := io.Copy(io.Discard, archive); err != nil {
		return fmt.Errorf("read the archive: %w", err)
	}
	if !archive.isWhole() {
		return errors.New("the archive broke off")
	}
	return dropLinks(root, links, note)
}

// dropLinks removes symbolic links that don't lead to something in the directory, by what they lead to and not by their text.
func dropLinks(root *os.Root, links []string, note func(format string, args ...any)) error {
	for _, name := range links {
		if _, err := root.Stat(filepath.FromSlash(name)); err == nil {
			continue
		}
		note("left out %q: a symbolic link to nothing in the directory", name)
		if err := root.Remove(filepath.FromSlash(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func extractEntry(root *os.Root, name string, header *tar.Header, content io.Reader, note func(format string, args ...any)) error {
	local, bits := filepath.FromSlash(name), header.FileInfo().Mode().Perm()
	switch header.Typeflag {
	case tar.TypeDir, tar.TypeReg, tar.TypeSymlink:
	default:
		note("left out %q: it is neither a file nor a directory", name)
		return nil
	}
	if parent := filepath.Dir(local); parent != "." {
		if err := root.MkdirAll(parent, 0o777); err != nil {
			return err
		}
	}
	switch header.Typeflag {
	case tar.TypeDir:
		// The owner can go on writing there.
		if err := root.MkdirAll(local, 0o777); err != nil {
			return err
		}
		return root.Chmod(local, bits|0o700)
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, local)
	default:
		file, err := root.OpenFile(local, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, content)
		return errors.Join(err, file.Chmod(bits), file.Close())
	}
}

// uploadDirectory sends what is in a directory as an archive.
func (o *copying) uploadDirectory(ctx context.Context, from, to place) error {
	info, err := os.Stat(from.path)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s isn't a directory: leave out -r", from.path)
	case strings.HasSuffix(to.path, "/"):
		absolute, err := filepath.Abs(from.path)
		if err != nil {
			return err
		}
		to.path += filepath.Base(absolute)
	}
	root, err := os.OpenRoot(from.path)
	if err != nil {
		return err
	}
	defer root.Close()
	file := o.file(to)
	file.Archive = true
	open := func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		go func() { writer.CloseWithError(archiveOf(root, writer, o.note)) }()
		return reader, nil
	}
	return o.Output.Upload(ctx, file, outputclient.Content{Open: open, Size: -1, Once: true}, o.progress.report)
}

// archiveOf writes what is below root into an archive. It follows no symbolic link.
func archiveOf(root *os.Root, to io.Writer, note func(format string, args ...any)) error {
	writer := tar.NewWriter(to)
	err := fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		return archiveEntry(root, writer, name, note)
	})
	return errors.Join(err, writer.Close())
}

func archiveEntry(root *os.Root, writer *tar.Writer, name string, note func(format string, args ...any)) error {
	local := filepath.FromSlash(name)
	info, err := root.Lstat(local)
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
		return writer.WriteHeader(header)
	case info.Mode()&fs.ModeSymlink != 0:
		header.Typeflag = tar.TypeSymlink
		if header.Linkname, err = root.Readlink(local); err != nil {
			return err
		}
		if _, err := root.Stat(local); err != nil {
			note("left out %q: a symbolic link to nothing in the directory", name)
			return nil
		}
		return writer.WriteHeader(header)
	case !info.Mode().IsRegular():
		note("left out %q: it is neither a file nor a directory", name)
		return nil
	}
	file, err := root.Open(local)
	if err != nil {
		return err
	}
	defer file.Close()
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := writer.WriteHeader(header); err != nil {
		return err
	}
	// What is appended meanwhile isn't part of it; a file that became shorter is an error of the archive.
	if _, err = io.CopyN(writer, file, info.Size()); errors.Is(err, io.EOF) {
		return fmt.Errorf("%s became shorter while it was read", name)
	}
	return err
}
