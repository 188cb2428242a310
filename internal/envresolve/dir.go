package envresolve

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Kind is the type of a directory entry.
type Kind int

// Kinds of entries.
const (
	// KindOther is neither a directory nor a symbolic link.
	KindOther Kind = iota
	KindDirectory
	KindLink
)

// Entry is what Lookup found.
type Entry struct {
	Kind Kind
	// Target is the target of a symbolic link, as written.
	Target string
}

// FS is the file system in which a working directory is looked up.
type FS interface {
	// Lookup returns the entry at a path, without following a link. The path is absolute and clean and isn't "/". Its
	// parent is "/", or a directory that Lookup has returned before.
	Lookup(path string) (Entry, error)
	// Enter returns why a process can't start in a directory that Lookup has returned, or in "/"; nil if it can.
	Enter(path string) error
}

// DirRequest is the input of ResolveDir.
type DirRequest struct {
	// WorkingDir is that of the most specific source; empty for the image's.
	WorkingDir string
	// ImageWorkingDir is the image's; empty for "/".
	ImageWorkingDir string
	// AllowedPaths are directories, one of which the directory must be or lie in; empty for /workspace, /tmp and the image's
	// working directory. An image without one starts in "/": then that is allowed by itself, and nothing else below it.
	AllowedPaths []string
}

// DirRequest returns the request for a plan and an image.
func (p *Plan) DirRequest(imageWorkingDir string) DirRequest {
	return DirRequest{WorkingDir: p.WorkingDir, ImageWorkingDir: imageWorkingDir, AllowedPaths: p.AllowedPaths}
}

// Bounds of one lookup. The kernel follows 40 links; the others bound the work that a malicious tree can cause.
const (
	maxPathBytes = 4096
	maxLinks     = 40
	maxLookups   = 1024
)

// ResolveDir returns the directory in which a process starts, with links resolved, or a *DirError.
//
// It follows paths as the kernel does, one component after the other: ".." is the parent of the directory that a link
// leads to, and a name before ".." must exist. It decides first whether the directory exists, then whether it is allowed.
// A directory that can't be reached or entered for lack of permission counts as not found; the message gives the cause.
// An allowed path that can't be resolved allows nothing.
func ResolveDir(fsys FS, req DirRequest) (string, error) {
	dir, err := walk(fsys, req.absolute(req.WorkingDir))
	if err == nil {
		err = fsys.Enter(dir)
	}
	if err != nil {
		return "", req.notFound(err)
	}
	for _, allowed := range req.allowed() {
		root, err := walk(fsys, req.absolute(allowed))
		if err == nil && (dir == root || within(root, dir) && (root != "/" || len(req.AllowedPaths) > 0)) {
			return dir, nil
		}
	}
	return "", req.notAllowed(dir)
}

// absolute joins without cleaning, because "link/.." isn't ".".
func (r DirRequest) absolute(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	return strings.TrimSuffix("/"+strings.TrimPrefix(r.ImageWorkingDir, "/"), "/") + "/" + path
}

// AllowedRoots are the allowed paths below which everything is allowed, as absolute ones, otherwise as they are written: a link may lead
// elsewhere. An image's own directory that is the root allows itself alone.
func (r DirRequest) AllowedRoots() []string {
	var roots []string
	for _, allowed := range r.allowed() {
		if root := r.absolute(allowed); root != "/" || len(r.AllowedPaths) > 0 {
			roots = append(roots, root)
		}
	}
	return roots
}

func (r DirRequest) allowed() []string {
	if len(r.AllowedPaths) > 0 {
		return r.AllowedPaths
	}
	defaults := []string{"/workspace", "/tmp"}
	if image := "/" + strings.TrimPrefix(r.ImageWorkingDir, "/"); !slices.Contains(defaults, image) {
		defaults = append(defaults, image)
	}
	return defaults
}

// within reports whether dir is root or lies in it. Both paths are clean and have no links.
func within(root, dir string) bool {
	return dir == root || strings.HasPrefix(dir, strings.TrimSuffix(root, "/")+"/")
}

// walk resolves the links of an absolute path to a directory.
func walk(fsys FS, path string) (string, error) {
	switch {
	case len(path) > maxPathBytes*2:
		return "", errors.New("the path is too long")
	case hasNUL(path):
		return "", errors.New("the path contains a NUL byte")
	}
	w := walker{fsys: fsys, at: "/", rest: path}
	for w.rest != "" {
		if err := w.step(); err != nil {
			return "", err
		}
	}
	return w.at, nil
}

// walker is the state of walk: at is the directory so far, without links, and rest is the rest of the path.
type walker struct {
	fsys           FS
	at, rest       string
	links, lookups int
}

func (w *walker) step() error {
	var name string
	name, w.rest, _ = strings.Cut(w.rest, "/")
	switch name {
	case "", ".":
		return nil
	case "..":
		w.at = path.Dir(w.at)
		return nil
	}
	path := strings.TrimSuffix(w.at, "/") + "/" + name
	if w.lookups++; w.lookups > maxLookups {
		return &fs.PathError{Op: "look up", Path: path, Err: errors.New("too many path components")}
	}
	entry, err := w.fsys.Lookup(path)
	if err != nil {
		return &fs.PathError{Op: "look up", Path: path, Err: err}
	}
	return w.enter(path, entry)
}

func (w *walker) enter(path string, entry Entry) error {
	switch {
	case entry.Kind == KindDirectory:
		w.at = path
		return nil
	case entry.Kind != KindLink:
		return &fs.PathError{Op: "look up", Path: path, Err: errors.New("not a directory")}
	case entry.Target == "":
		return &fs.PathError{Op: "follow", Path: path, Err: fs.ErrNotExist}
	}
	if w.links++; w.links > maxLinks {
		return &fs.PathError{Op: "follow", Path: path, Err: errors.New("too many symbolic links, or a loop of them")}
	}
	if strings.HasPrefix(entry.Target, "/") {
		w.at = "/"
	}
	w.rest = entry.Target + "/" + w.rest
	return nil
}
