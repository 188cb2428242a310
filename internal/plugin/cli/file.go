package cli

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Open opens a file, or standard input for "-".
func Open(name string, stdin io.Reader) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(stdin), nil
	}
	return os.Open(name)
}

// BesideName is a new name in the folder of a file.
func BesideName(name string) string {
	return filepath.Join(filepath.Dir(name), fmt.Sprintf(".toolcall-%016x", rand.Uint64()))
}

// WriteWhole writes a file under another name and renames it once it is complete. A file that is replaced keeps its permission bits; a
// private one is its owner's alone.
func WriteWhole(name string, isPrivate bool, write func(io.Writer) error) error {
	mode := os.FileMode(0o666)
	existing, err := os.Stat(name)
	switch {
	case err == nil && !existing.Mode().IsRegular():
		return fmt.Errorf("%s isn't a regular file", name)
	case err == nil || isPrivate:
		// Nobody who can't read the file can read what replaces it.
		mode = 0o600
	}
	file, err := os.OpenFile(BesideName(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if err := write(file); err != nil {
		return err
	}
	if existing != nil && !isPrivate {
		if err := file.Chmod(existing.Mode().Perm()); err != nil {
			return err
		}
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), name)
}
