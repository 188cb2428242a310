package image

import (
	"archive/tar"
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

func addFiles(w *tar.Writer, files []File) error {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Target, b.Target) })
	for _, dir := range parents(files) {
		header := &tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: Epoch}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := addAll(w, f.Source, strings.TrimPrefix(f.Target, "/")); err != nil {
			return fmt.Errorf("adding %s: %w", f.Target, err)
		}
	}
	return nil
}

// addAll adds a file, or a folder with all that is in it. Links inside a folder stay links.
func addAll(w *tar.Writer, source, target string) error {
	if info, err := os.Stat(source); err != nil || !info.IsDir() {
		if err != nil {
			return err
		}
		return addFile(w, source, target)
	}
	return filepath.WalkDir(source, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := path.Join(target, filepath.ToSlash(strings.TrimPrefix(at, source)))
		switch {
		case entry.IsDir():
			return w.WriteHeader(&tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: Epoch})
		case entry.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(at)
			if err != nil {
				return err
			}
			return w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: link, Mode: 0o777, ModTime: Epoch})
		default:
			return addFile(w, at, name)
		}
	})
}

// parents lists the folders above the files, each after the one it lies in.
func parents(files []File) []string {
	var dirs []string
	for _, f := range files {
		for dir := path.Dir(strings.TrimPrefix(f.Target, "/")); dir != "." && dir != "/"; dir = path.Dir(dir) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// ParseFile reads "source:/target".
func ParseFile(text string) (File, error) {
	source, target, ok := strings.Cut(text, ":")
	if !ok || source == "" || !path.IsAbs(target) || path.Clean(target) != target || target == "/" {
		return File{}, fmt.Errorf("%q: give file:/path/in/the/image", text)
	}
	return File{Source: source, Target: target}, nil
}
