// Package image makes image tarballs without a registry or a container engine.
// The same input gives the same bytes: entries are sorted, times are fixed, and
// owners are numbers.
package image

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Epoch is the time that every file and image claims to be from.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Binary is an image of executables.
type Binary struct {
	Tag string
	// From is the tarball of an image that they are added to; empty for none.
	From string
	// Config says how the image is run, unless there is another that they are added to.
	Config v1.Config
	Files  []File
}

// Write makes a loadable tarball at path.
func (b Binary) Write(path string) error {
	return save(path, b.Tag, func(dir string) (v1.Image, error) {
		layer, err := filesLayer(filepath.Join(dir, "layer.tar"), b.Files)
		if err != nil {
			return nil, err
		}
		if b.From == "" {
			return assemble(b.Config, runtime.GOARCH, layer)
		}
		base, err := tarball.ImageFromPath(b.From, nil)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", b.From, err)
		}
		return mutate.AppendLayers(base, layer)
	})
}

// save makes a tarball of what build returns, which can use a folder meanwhile; a half written one never has the name.
func save(path, tag string, build func(dir string) (v1.Image, error)) error {
	named, err := name.NewTag(tag, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("tag %q: %w", tag, err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".image-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	img, err := build(dir)
	if err != nil {
		return fmt.Errorf("assembling %s: %w", tag, err)
	}
	whole := filepath.Join(dir, "image.tar")
	if err := tarball.WriteToFile(whole, named, img); err != nil {
		return fmt.Errorf("writing %s: %w", tag, err)
	}
	return os.Rename(whole, path)
}

// filesLayer writes files into a layer, which is at path.
func filesLayer(path string, files []File, options ...tarball.LayerOption) (v1.Layer, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := errors.Join(addFiles(w, files), w.Close()); err != nil {
		return nil, err
	}
	return layerOf(path, options...)
}

func layerOf(path string, options ...tarball.LayerOption) (v1.Layer, error) {
	return tarball.LayerFromFile(path, append(options, tarball.WithCompressionLevel(gzip.BestSpeed))...)
}

func assemble(config v1.Config, architecture string, layer v1.Layer) (v1.Image, error) {
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	layers, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, &v1.ConfigFile{
		Architecture: architecture, OS: "linux", Created: v1.Time{Time: Epoch}, Config: config, RootFS: layers.RootFS,
	})
}

// File is one file or folder of the machine and the absolute path it gets in the image.
type File struct {
	Source, Target string
}

func addFile(w *tar.Writer, source, target string) error {
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: target, Typeflag: tar.TypeReg, Mode: 0o755, Size: st.Size(), ModTime: Epoch}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
