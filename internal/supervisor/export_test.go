package supervisor

import (
	"errors"
	"os"
	"testing"
)

// PrivateFilesName is the directory of private files.
const PrivateFilesName = privateFilesName

// SetTemporaryDir puts private files into a directory of the test's own.
func SetTemporaryDir(t testing.TB, dir string) {
	before := temporaryDir
	temporaryDir = dir
	t.Cleanup(func() { temporaryDir = before })
}

// LinkedFrom are the names that appear beside a snippet whose call runs in a directory.
func LinkedFrom(dir *os.File) ([]string, error) {
	f, err := newPrivateFiles()
	if err != nil {
		return nil, err
	}
	f.link(dir)
	entries, err := os.ReadDir(f.path)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, errors.Join(err, f.remove())
}
