package image

import (
	"archive/tar"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Extend makes, from the tarball of one image, another one at path that has executables in a layer of its own.
// How it is run stays the same.
func Extend(path, base, tag string, files []File) error {
	named, err := name.NewTag(tag, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("tag %q: %w", tag, err)
	}
	img, err := tarball.ImageFromPath(base, nil)
	if err != nil {
		return fmt.Errorf("reading %s: %w", base, err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".image-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	layer, err := writeLayer(filepath.Join(dir, "layer.tar"), func(w *tar.Writer) error { return addFiles(w, files) })
	if err != nil {
		return fmt.Errorf("layer of %s: %w", tag, err)
	}
	img, err = mutate.AppendLayers(img, layer)
	if err != nil {
		return fmt.Errorf("assembling %s: %w", tag, err)
	}
	whole := filepath.Join(dir, "image.tar")
	if err := tarball.WriteToFile(whole, named, img); err != nil {
		return fmt.Errorf("writing %s: %w", tag, err)
	}
	return os.Rename(whole, path)
}
