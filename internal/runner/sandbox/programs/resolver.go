package programs

import (
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// resolver finds programs in the pod.
type resolver struct {
	*List
	// path are the directories of the command's PATH, open.
	path []*openFile
	// grant is called with each file and directory that may be executed, while it is open.
	grant func(fd int, isDir bool) error

	// writableDirs holds which directories the call can write to.
	writableDirs map[string]bool
	// found holds what entries lead to, since programs share helpers.
	found map[string]string
}

func newResolver(r *rules.Rules, writePaths []string) *resolver {
	return &resolver{
		List:         &List{rules: r, writePaths: writePaths, files: map[fileID]*program{}, loaders: map[fileID]bool{}},
		writableDirs: map[string]bool{}, found: map[string]string{},
	}
}

// Resolve finds what the rules list in a command's PATH. What the call can write to is in writePaths, without links, where the rules restrict
// that. grant is called with each file and directory that may be executed, while it is open.
func Resolve(r *rules.Rules, writePaths []string, path string, grant func(fd int, isDir bool) error) (*List, error) {
	res := newResolver(r, writePaths)
	res.grant = grant
	// Where writing is restricted, directories that the call can write to aren't listed.
	res.anyMayWrite = r.Programs.AllowWritable || r.WritePaths != nil
	res.openDirs(path)
	defer res.closeDirs()
	if err := res.standardLoaders(); err != nil {
		return nil, err
	}
	if own := r.Programs.Own; own != "" {
		if _, err := res.add(own, false); err != nil {
			return nil, err
		}
	}
	for _, entry := range r.Programs.Allowed {
		if err := res.listed(entry); err != nil {
			return nil, err
		}
	}
	for _, p := range res.files {
		// One whose names are all listed needn't be looked at.
		p.multiCall = p.isMany && !p.isListedWholly()
	}
	return res.List, nil
}

// openDirs opens the directories of PATH that are there, each once: some are often links to others.
func (r *resolver) openDirs(path string) {
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		f, err := openPath(dir)
		if err != nil {
			continue
		}
		if !f.isDir() || slices.ContainsFunc(r.path, func(known *openFile) bool { return known.id == f.id }) {
			f.close()
			continue
		}
		r.path = append(r.path, f)
	}
}

func (r *resolver) closeDirs() {
	for _, dir := range r.path {
		dir.close()
	}
}

// listed adds an entry of the policy, and its helpers.
func (r *resolver) listed(entry string) error {
	real, err := r.add(entry, r.rules.Programs.AllowWritable)
	if err != nil {
		return err
	}
	if real == "" {
		r.notFound = append(r.notFound, entry)
		return nil
	}
	for _, helper := range helpersOf(entry, real, r.rules.Programs.Helpers) {
		if err := r.helper(helper); err != nil {
			return err
		}
	}
	return nil
}

// helper adds a name, or what a glob leads to. What isn't there isn't needed.
func (r *resolver) helper(pattern string) error {
	if _, done := r.found[pattern]; done {
		return nil
	}
	if !strings.ContainsAny(pattern, "*?[") {
		_, err := r.add(pattern, false)
		return err
	}
	r.found[pattern] = ""
	matches, _ := filepath.Glob(strings.TrimSuffix(pattern, "/"))
	for _, match := range matches {
		if strings.HasSuffix(pattern, "/") {
			match += "/"
		}
		if _, err := r.add(match, false); err != nil {
			return err
		}
	}
	return nil
}

// add adds what an entry leads to, and returns its path without links; it is empty if that is nothing.
func (r *resolver) add(entry string, allowWritable bool) (string, error) {
	if real, done := r.found[entry]; done {
		return real, nil
	}
	real, err := r.addNew(entry, allowWritable)
	r.found[entry] = real
	return real, err
}

func (r *resolver) addNew(entry string, allowWritable bool) (string, error) {
	switch {
	case entry == "":
		return "", nil
	case !strings.Contains(entry, "/"):
		return r.addName(entry)
	case !filepath.IsAbs(entry):
		return "", nil
	}
	f, err := openProgram(unix.AT_FDCWD, entry)
	if err != nil {
		return "", nil // what isn't there can't be executed either
	}
	defer f.close()
	switch writable := r.isWritable(f); {
	case r.leadsThroughWritable(entry, f) && !writable:
		// Whoever can change the link would list what isn't the call's own.
		return "", nil
	case writable && !allowWritable:
		return "", nil
	case writable:
		r.writable = append(r.writable, entry)
	}
	if strings.HasSuffix(entry, "/") != f.isDir() {
		return "", nil
	}
	if f.isDir() {
		r.dirs = append(r.dirs, strings.TrimSuffix(f.path, "/")+"/")
		return f.path, r.grant(f.fd, f.isDir())
	}
	return f.path, r.addFile(f, filepath.Base(entry))
}

// addName adds the first program of that name in PATH that the call can't write to.
func (r *resolver) addName(name string) (string, error) {
	for _, dir := range r.path {
		f, err := openProgram(dir.fd, name)
		if err != nil {
			continue
		}
		if f.isExecutable() && !r.isWritable(f) && !r.isWritablePath(dir.path) && !r.leadsThroughWritable(filepath.Join(dir.path, name), f) {
			defer f.close()
			return f.path, r.addFile(f, name)
		}
		f.close()
	}
	return "", nil
}

func (r *resolver) addFile(f *openFile, name string) error {
	if !f.isRegular() {
		return nil
	}
	if known := r.files[f.id]; known != nil {
		known.names[name] = true
		return nil
	}
	if r.loaders[f.id] {
		return nil
	}
	p := &program{path: f.path, interpreters: readInterpreters(f), names: map[string]bool{name: true}, version: fileVersion{f.id, f.changed}}
	p.isMany, p.calls = isMultiCall(f)
	r.files[f.id] = p
	if p.isLoader {
		return nil
	}
	if err := r.addLoader(p.loader); err != nil {
		return err
	}
	return r.grant(f.fd, f.isDir())
}

// standardLoaders adds the usual loaders: programs in listed directories need them.
func (r *resolver) standardLoaders() error {
	for _, loader := range []string{
		"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1",
	} {
		if err := r.addLoader(loader); err != nil {
			return err
		}
	}
	return nil
}

func (r *resolver) addLoader(path string) error {
	if _, done := r.found[path]; done || !filepath.IsAbs(path) {
		return nil
	}
	r.found[path] = ""
	f, err := openPath(path)
	if err != nil {
		return nil // the program can't be executed then
	}
	defer f.close()
	if !f.isRegular() || r.loaders[f.id] || r.isWritable(f) {
		return nil
	}
	r.loaders[f.id] = true
	return r.grant(f.fd, f.isDir())
}

// leadsThroughWritable reports whether a path led to a file through a link that the call, or another of this user, can
// replace, or has replaced since.
func (r *resolver) leadsThroughWritable(path string, to *openFile) bool {
	real, dirs := followLinks(path)
	return real != to.path || slices.ContainsFunc(dirs, func(dir string) bool { return r.isWritablePath(dir) || mayReplaceIn(dir) })
}

// isWritable reports whether the call can write to the file or put another one in its place; to a directory also when
// it can write to something below.
func (r *resolver) isWritable(f *openFile) bool {
	if r.rules.WritePaths == nil && !f.isDir() && (f.mayAccess(unix.W_OK) || f.isOwn()) {
		return true
	}
	if f.isDir() && slices.ContainsFunc(slices.Concat(r.writePaths, DevicePaths), func(root string) bool { return IsBelow(root, f.path) }) {
		return true
	}
	if r.rules.WritePaths != nil || f.isDir() {
		return r.isWritablePath(f.path)
	}
	return r.isWritablePath(filepath.Dir(f.path))
}

// isWritablePath reports whether the call can write to a directory, or to one above it.
func (r *resolver) isWritablePath(dir string) bool {
	if known, ok := r.writableDirs[dir]; ok {
		return known
	}
	writable := false
	if r.rules.WritePaths != nil {
		writable = slices.ContainsFunc(r.writePaths, func(root string) bool { return IsBelow(dir, root) })
	} else {
		writable = unix.Access(dir, unix.W_OK) == nil || dir != "/" && r.isWritablePath(filepath.Dir(dir))
	}
	r.writableDirs[dir] = writable
	return writable
}

// programDirs are the usual directories of programs.
var programDirs = []string{"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/games"}

// programDirNames are the names of directories that hold programs and nothing else.
var programDirNames = []string{"bin", "sbin", "games"}

// HiddenDirs are the directories of programs, without links: the usual ones, and those in PATH. One with another name
// than these have may hold a program's data as well, one that is listed hides nothing, and in one that the call can
// write to it reads what it has written.
func (l *List) HiddenDirs(path string) []string {
	var dirs []string
	calls := newResolver(l.rules, l.writePaths)
	for _, dir := range append(filepath.SplitList(path), programDirs...) {
		real := realPath(dir)
		if !filepath.IsAbs(dir) || slices.Contains(dirs, real) || !slices.Contains(programDirNames, filepath.Base(real)) {
			continue
		}
		listed := slices.ContainsFunc(l.dirs, func(listed string) bool { return strings.HasPrefix(real+"/", listed) })
		if !listed && !calls.isWritablePath(real) {
			dirs = append(dirs, real)
		}
	}
	return dirs
}
