package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/result"
)

// Files are the files that were kept of a call.
type Files struct {
	file   *os.File
	byPath map[string]*artifact
	size   int64
}

// artifact is a file that was kept.
type artifact struct {
	content *io.SectionReader
	info    output.Info
}

// newFiles are those whose contents are in a file one after the other.
func newFiles(file *os.File, artifacts []result.Artifact) *Files {
	f := &Files{file: file, byPath: map[string]*artifact{}}
	for i := range artifacts {
		a := &artifacts[i]
		f.byPath[a.Path] = &artifact{io.NewSectionReader(file, f.size, a.Bytes), output.Info{Bytes: a.Bytes, Complete: true, SHA256: a.SHA256}}
		f.size += a.Bytes
	}
	return f
}

// Open returns a file by its path; nil when there is none.
func (f *Files) Open(path string) output.Reader {
	if f == nil {
		return nil
	}
	if one := f.byPath[path]; one != nil {
		return one
	}
	return nil
}

// Size is how much they take on disk.
func (f *Files) Size() int64 {
	if f == nil {
		return 0
	}
	return f.size
}

// Drop gives back what they take. Readers are told that they aren't there any more.
func (f *Files) Drop() {
	if f != nil {
		f.file.Close()
	}
}

// Info implements output.Reader.
func (k *artifact) Info() output.Info { return k.info }

// ReadAt implements output.Reader.
func (k *artifact) ReadAt(_ context.Context, p []byte, offset int64) (int, error) {
	n, err := k.content.ReadAt(p, offset)
	switch {
	case n > 0 || len(p) == 0:
		return n, nil
	case errors.Is(err, os.ErrClosed):
		return 0, output.ErrNotFound
	case errors.Is(err, io.EOF):
		return 0, io.EOF
	default:
		return 0, fmt.Errorf("read what was kept of a file: %w", err)
	}
}

// Wait implements output.Reader: there will be no more.
func (k *artifact) Wait(ctx context.Context, _ int64) error { return ctx.Err() }

// Close implements output.Reader. A reader holds nothing.
func (k *artifact) Close() {}
