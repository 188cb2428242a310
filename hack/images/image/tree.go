package image

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// treeWriter remembers the files with several names that it has already written.
type treeWriter struct {
	out   *tar.Writer
	root  string
	links map[uint64]string
}

// addTree writes everything below root, in the order of the names.
func addTree(w *tar.Writer, root string) error {
	t := &treeWriter{out: w, root: root, links: map[uint64]string{}}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		if err := t.add(path, entry); err != nil {
			return fmt.Errorf("adding %s: %w", path, err)
		}
		return nil
	})
}

func (t *treeWriter) add(path string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	header, err := t.header(path, info)
	if err != nil {
		return err
	}
	if err := t.out.WriteHeader(header); err != nil || header.Typeflag != tar.TypeReg {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(t.out, f)
	return err
}

func (t *treeWriter) header(path string, info fs.FileInfo) (*tar.Header, error) {
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		link, err := os.Readlink(path)
		if err != nil {
			return nil, err
		}
		target = link
	}
	from, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return nil, err
	}
	name, err := filepath.Rel(t.root, path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		name += "/"
	}
	h := &tar.Header{
		Name: name, Typeflag: from.Typeflag, Linkname: from.Linkname, Size: from.Size, Mode: from.Mode,
		Uid: from.Uid, Gid: from.Gid, Devmajor: from.Devmajor, Devminor: from.Devminor, ModTime: Epoch,
	}
	t.hardlink(h, info)
	return h, nil
}

// hardlink turns every name of a file after the first into a link to it.
func (t *treeWriter) hardlink(h *tar.Header, info fs.FileInfo) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Nlink < 2 || h.Typeflag != tar.TypeReg {
		return
	}
	if first, seen := t.links[st.Ino]; seen {
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
		return
	}
	t.links[st.Ino] = h.Name
}
