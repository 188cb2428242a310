package image

import (
	"archive/tar"
	"cmp"
	"fmt"
	"path"
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
		if err := addFile(w, f.Source, strings.TrimPrefix(f.Target, "/")); err != nil {
			return fmt.Errorf("adding %s: %w", f.Target, err)
		}
	}
	return nil
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
