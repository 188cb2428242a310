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
	// path are the directories of the command's PATH, without links.
	path []string
	// grant is called with each file and directory that may be executed, while it is open.
	grant func(fd int)

	// found holds what entries lead to, since programs share helpers. The path is empty also for a helper that calls can write to, which
	// an entry of the policy may be.
	found map[string]string
}

// standardLoaders are the usual loaders: programs in listed directories need them.
var standardLoaders = []string{
	"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1",
}

// Resolve finds what the rules list in a command's PATH. What the call can write to is in writePaths, without links, where the
// rules restrict that. grant is called with each file and directory that may be executed, while it is open.
func Resolve(r *rules.Rules, writePaths []string, path string, grant func(fd int)) *List {
	res := &resolver{
		List:  &List{rules: r, writePaths: writePaths, files: map[fileID]*program{}, loaders: map[fileID]bool{}},
		grant: grant, found: map[string]string{},
	}
	// Where writing is restricted, directories that the call can write to aren't listed.
	res.anyMayWrite = r.Programs.AllowWritable || r.WritePaths != nil
	for _, dir := range filepath.SplitList(path) {
		// Some are often links to others.
		if real := realPath(dir); filepath.IsAbs(dir) && !slices.Contains(res.path, real) {
			res.path = append(res.path, real)
		}
	}
	for _, loader := range standardLoaders {
		res.addLoader(loader)
	}
	res.add(r.Programs.Own, false)
	for _, entry := range r.Programs.Allowed {
		res.listed(entry)
	}
	for _, p := range res.files {
		// One whose names are all listed needn't be looked at.
		p.multiCall = p.isMany && !p.isListedWholly()
	}
	return res.List
}

// listed adds an entry of the policy, and its helpers.
func (r *resolver) listed(entry string) {
	real := r.add(entry, r.rules.Programs.AllowWritable)
	if real == "" {
		r.notFound = append(r.notFound, entry)
		return
	}
	if strings.HasSuffix(entry, "/") {
		r.listedDir(entry, real) // it has no helpers of its own: /opt/python/ isn't Python
		return
	}
	for _, helper := range helpersOf(entry, real, r.rules.Programs.Helpers) {
		r.helper(helper)
	}
}

// listedDir adds what a listed directory means beside the files below it: where the links in it lead, the names of programs that are many,
// and helpers.
func (r *resolver) listedDir(entry, real string) {
	for program, helpers := range r.rules.Programs.Helpers {
		if strings.HasPrefix(program, entry) {
			for _, helper := range helpers {
				r.helper(helper)
			}
		}
	}
	dir, err := openPath(real)
	if err != nil {
		return
	}
	defer dir.close()
	if dir.path != real {
		return // it is another one by now
	}
	mayChange := r.isWritablePath(real) || mayReplaceIn(real)
	for _, name := range dir.index().notable {
		r.listedName(filepath.Join(real, name), mayChange)
	}
}

// listedName adds what a name in a listed directory leads to. mayChange says that a call can have made the name: then a link leads to
// nothing but what the call can write to as well, and the name means nothing more.
func (r *resolver) listedName(path string, mayChange bool) {
	f, err := openPath(path)
	if err != nil {
		return
	}
	defer f.close()
	isLink, isIn, isMany := f.path != path, r.isInDir(f), !mayChange && (f.isLinked || isMultiCallName(filepath.Base(f.path)))
	// Most links lead to a file that is listed by its own name.
	if isLink && isIn && !isMany || mayChange && !isLink || !f.isExecutable() || !r.mayList(path, f, r.rules.Programs.AllowWritable) {
		return
	}
	if isMany || !isIn {
		r.addFile(f, filepath.Base(path), isMany)
	}
	switch writable := r.isWritable(f); {
	case mayChange:
	case isLink && writable:
		r.writable = append(r.writable, path)
	case !writable:
		for _, helper := range helpersOf(path, f.path, nil) {
			r.helper(helper)
		}
	}
}

// helper adds a name, or what a glob leads to. What isn't there isn't needed.
func (r *resolver) helper(pattern string) {
	if !strings.ContainsAny(pattern, "*?[") {
		r.add(pattern, false)
		return
	}
	if _, done := r.found[pattern]; done {
		return
	}
	r.found[pattern] = ""
	matches, _ := filepath.Glob(strings.TrimSuffix(pattern, "/"))
	for _, match := range matches {
		if strings.HasSuffix(pattern, "/") {
			match += "/"
		}
		r.add(match, false)
	}
}

// add adds what an entry leads to, and returns its path without links; it is empty if that is nothing.
func (r *resolver) add(entry string, allowWritable bool) string {
	real, done := r.found[entry]
	switch {
	case done && (real != "" || !allowWritable), entry == "":
		return real
	case !strings.Contains(entry, "/"):
		real = r.addName(entry)
	case filepath.IsAbs(entry):
		real = r.addPath(entry, allowWritable)
	}
	r.found[entry] = real
	return real
}

func (r *resolver) addPath(entry string, allowWritable bool) string {
	f, err := openPath(entry)
	if err != nil {
		return "" // what isn't there can't be executed either
	}
	defer f.close()
	if strings.HasSuffix(entry, "/") != f.isDir() || !r.mayList(entry, f, allowWritable) {
		return ""
	}
	if r.isWritable(f) {
		r.writable = append(r.writable, entry)
	}
	if f.isDir() {
		r.dirs = append(r.dirs, strings.TrimSuffix(f.path, "/")+"/")
		r.grant(f.fd)
	} else {
		r.addFile(f, filepath.Base(entry), true)
	}
	return f.path
}

// mayList reports whether a path may list the file that it leads to. Whoever can change a link would list what isn't the call's own.
func (r *resolver) mayList(path string, f *openFile, allowWritable bool) bool {
	if r.isWritable(f) {
		return allowWritable
	}
	return !r.leadsThroughWritable(path, f)
}

// addName adds the first program of that name in PATH that the call can't write to.
func (r *resolver) addName(name string) string {
	for _, dir := range r.path {
		path := filepath.Join(dir, name)
		f, err := openPath(path)
		if err != nil {
			continue
		}
		defer f.close()
		if f.isExecutable() && !r.isWritable(f) && !r.isWritablePath(dir) && !r.leadsThroughWritable(path, f) {
			r.addFile(f, name, true)
			return f.path
		}
	}
	return ""
}

// addFile adds a file under a name. mayBeMany says that it may be many programs, which are told apart then.
func (r *resolver) addFile(f *openFile, name string, mayBeMany bool) {
	if known := r.files[f.id]; known != nil {
		known.names[name] = true
		return
	}
	if !f.isRegular() || r.loaders[f.id] {
		return
	}
	p := &program{path: f.path, interpreters: readInterpreters(f), names: map[string]bool{name: true}, version: fileVersion{f.id, f.changed}}
	if mayBeMany {
		p.isMany, p.calls = isMultiCall(f)
	}
	r.files[f.id] = p
	if !p.isLoader {
		r.addLoader(p.loader)
		r.grant(f.fd)
	}
}

func (r *resolver) addLoader(path string) {
	if _, done := r.found[path]; done || !filepath.IsAbs(path) {
		return
	}
	r.found[path] = ""
	f, err := openPath(path)
	if err != nil {
		return // the program can't be executed then
	}
	defer f.close()
	if f.isRegular() && !r.loaders[f.id] && !r.isWritable(f) {
		r.loaders[f.id] = true
		r.grant(f.fd)
	}
}

// leadsThroughWritable reports whether a path led to a file through a link that the call, or another of this user, can
// replace, or has replaced since.
func (l *List) leadsThroughWritable(path string, to *openFile) bool {
	real, dirs := followLinks(path)
	return real != to.path || slices.ContainsFunc(dirs, func(dir string) bool { return l.isWritablePath(dir) || mayReplaceIn(dir) })
}

// isWritable reports whether the call can write to the file or put another one in its place; to a directory also when
// it can write to something below.
func (l *List) isWritable(f *openFile) bool {
	if l.rules.WritePaths == nil && !f.isDir() && (f.mayAccess(unix.W_OK) || f.isOwn()) {
		return true
	}
	if f.isDir() && slices.ContainsFunc(slices.Concat(l.writePaths, DevicePaths), func(root string) bool { return IsBelow(root, f.path) }) {
		return true
	}
	if l.rules.WritePaths != nil || f.isDir() {
		return l.isWritablePath(f.path)
	}
	return l.isWritablePath(filepath.Dir(f.path))
}

// isWritablePath reports whether the call can write to a directory, or to one above it.
func (l *List) isWritablePath(dir string) bool {
	if l.rules.WritePaths != nil {
		return slices.ContainsFunc(l.writePaths, func(root string) bool { return IsBelow(dir, root) })
	}
	return unix.Access(dir, unix.W_OK) == nil || dir != "/" && l.isWritablePath(filepath.Dir(dir))
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
	for _, dir := range append(filepath.SplitList(path), programDirs...) {
		real := realPath(dir)
		if !filepath.IsAbs(dir) || slices.Contains(dirs, real) || !slices.Contains(programDirNames, filepath.Base(real)) {
			continue
		}
		listed := slices.ContainsFunc(l.dirs, func(listed string) bool { return strings.HasPrefix(real+"/", listed) })
		if !listed && !l.isWritablePath(real) {
			dirs = append(dirs, real)
		}
	}
	return dirs
}
