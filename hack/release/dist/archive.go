package dist

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"

	"toolcall.dev/operator/hack/images/image"
)

// entry is a file of an archive.
type entry struct {
	name    string
	mode    fs.FileMode
	content []byte
}

// tarGz packs files with fixed times and owners, in the order given.
func tarGz(files []entry) ([]byte, error) {
	var packed bytes.Buffer
	compressed := gzip.NewWriter(&packed)
	w := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: image.Epoch,
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := errors.Join(w.Close(), compressed.Close())
	return packed.Bytes(), err
}

// zipped does the same for those who have no tar.
func zipped(files []entry) ([]byte, error) {
	var packed bytes.Buffer
	w := zip.NewWriter(&packed)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: image.Epoch}
		header.SetMode(f.mode)
		into, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := into.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return packed.Bytes(), err
}
