package envresolve

import (
	"errors"
	"io/fs"
	"path"
)

// fakeFS is a tree of directories, files and links, all in memory.
type fakeFS struct {
	entries map[string]Entry
	// denied paths answer that permission is denied; locked directories can't be entered.
	denied, locked map[string]bool
	lookups        int
}

// newFakeFS makes a tree. Every parent of what is named is a directory too.
func newFakeFS(directories, files []string, links map[string]string) *fakeFS {
	f := &fakeFS{entries: map[string]Entry{}, denied: map[string]bool{}, locked: map[string]bool{}}
	for _, dir := range directories {
		f.add(dir, Entry{Kind: KindDirectory})
	}
	for _, file := range files {
		f.add(file, Entry{Kind: KindOther})
	}
	for link, target := range links {
		f.add(link, Entry{Kind: KindLink, Target: target})
	}
	return f
}

func (f *fakeFS) add(name string, entry Entry) {
	f.entries[name] = entry
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if _, ok := f.entries[dir]; !ok {
			f.entries[dir] = Entry{Kind: KindDirectory}
		}
	}
}

func (f *fakeFS) Lookup(name string) (Entry, error) {
	f.lookups++
	if name == "/" || path.Clean(name) != name {
		panic("Lookup of " + name + " breaks the interface's promise")
	}
	if dir := path.Dir(name); dir != "/" && f.entries[dir].Kind != KindDirectory {
		panic("Lookup of " + name + " below what isn't a directory")
	}
	if f.denied[name] {
		return Entry{}, fs.ErrPermission
	}
	entry, ok := f.entries[name]
	if !ok {
		return Entry{}, fs.ErrNotExist
	}
	return entry, nil
}

func (f *fakeFS) Enter(name string) error {
	if f.locked[name] {
		return &fs.PathError{Op: "enter", Path: name, Err: fs.ErrPermission}
	}
	return nil
}

func reasonOf(err error) string {
	var dirErr *DirError
	if errors.As(err, &dirErr) {
		return dirErr.Reason
	}
	return ""
}
