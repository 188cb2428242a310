package apiservertest

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"toolcall.dev/operator/internal/testing/built"
)

// root is the project's folder; empty, which is the working folder, where there is none.
var root = sync.OnceValue(func() string {
	dir, _ := built.Root()
	return dir
})

// Path is that of a file or folder of the project.
func Path(elem ...string) string { return filepath.Join(append([]string{root()}, elem...)...) }

// seen has what was read since the tests began.
var seen sync.Map

// Reads has go test know of files and folders of the project that programs read which a test starts, or that were read before the
// tests began: it answers from its cache only while what a test has opened itself is unchanged.
func Reads(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if _, was := seen.LoadOrStore(path, true); was {
			continue
		}
		err := filepath.WalkDir(Path(path), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			_, err = os.ReadFile(name)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
