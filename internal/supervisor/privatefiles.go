package supervisor

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// privateFilesName is the directory in temporaryDir that has those of all calls, so that one path names what no operation
// on files may reach.
const privateFilesName = ".toolcall-files"

// temporaryDir is where private files are. The image's TMPDIR doesn't count: it can be a directory that outlives the
// call, or that others see. Tests change it.
var temporaryDir = "/tmp"

// privateFilesMode lets nobody else in.
const privateFilesMode = 0o700

// privateFilesPaths are the paths by which the directory of all private files can be reached.
func privateFilesPaths() []string {
	paths := []string{path.Join(temporaryDir, privateFilesName)}
	if real, err := filepath.EvalSymlinks(temporaryDir); err == nil && real != temporaryDir {
		paths = append(paths, path.Join(real, privateFilesName))
	}
	return paths
}

// privateFiles is the directory of one call's files: those that its variables name, and its snippet. All is done by descriptor: a call of
// the same session has the same user, and can put something else in the place of any path.
type privateFiles struct {
	// path is for the command.
	path string
	// all is the directory of all calls', own that of this one, which has the name in it.
	all, own *os.Root
	name     string
	// ownDir is own again, for what an os.Root does by a path, which needs the right to search the directory.
	ownDir   *os.File
	written  []string
	removing sync.Once
}

// resolve finishes the call's plan, with the files that variables name, and room for a snippet; nil for neither. The caller
// removes them, also after an error.
func (e *Executor) resolve(a *wire.Assignment) (resolved envresolve.Resolved, files *privateFiles, err error) {
	plan := a.Environment
	if plan.NamesFiles() || a.HasSource {
		if files, err = newPrivateFiles(); err != nil {
			return resolved, nil, fmt.Errorf("make a directory for the files of secrets and snippets: %w", err)
		}
		plan.FileDir = files.path
	}
	resolved, err = envresolve.Resolve(&plan, e.Environ, wire.Internal)
	if err == nil {
		err = e.checkApart(resolved.Apart)
	}
	for i := range resolved.Files {
		if err == nil {
			err = files.write(path.Base(resolved.Files[i].Path), []byte(resolved.Files[i].Content))
		}
	}
	if err == nil {
		addDefaults(&plan, &resolved)
	}
	return resolved, files, err
}

// maxShownNames bounds the names in a message.
const maxShownNames = 8

// checkApart refuses to give values to a call that others of its session could read in /proc: those of a runner without rules
// of its own aren't held by the kernel.
func (e *Executor) checkApart(names []string) error {
	if e.Session == nil || e.Rules != nil || len(names) == 0 {
		return nil
	}
	return refused(result.IsolationUnavailable, fmt.Sprintf("the node can't keep the calls of a session apart (it has no Landlock), and "+
		"others could read the secrets %.256q of this call: run it without a session, or in a session on another node", names[:min(maxShownNames, len(names))]))
}

// newPrivateFiles makes a directory for a call. Its name is random: another call can't be there first.
func newPrivateFiles() (*privateFiles, error) {
	temporary, err := os.OpenRoot(temporaryDir)
	if err != nil {
		return nil, err
	}
	defer temporary.Close()
	all, err := makeOwnDir(temporary, privateFilesName)
	if err != nil {
		return nil, err
	}
	name := rand.Text()
	own, err := makeOwnDir(all, name)
	if err != nil {
		_ = all.Close()
		return nil, err
	}
	f := &privateFiles{path: path.Join(temporaryDir, privateFilesName, name), all: all, own: own, name: name}
	if f.ownDir, err = own.Open("."); err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return f, nil
}

// makeOwnDir makes a directory and opens it, and makes sure that it isn't a link, and that it is this user's alone. A command may have
// put anything in its place: nothing is waited for, as opening a FIFO would.
func makeOwnDir(in *os.Root, name string) (*os.Root, error) {
	if err := in.Mkdir(name, privateFilesMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	parent, err := in.Open(".")
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	where := path.Join(temporaryDir, privateFilesName)
	fd, err := unix.Openat(int(parent.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return nil, fmt.Errorf("%q is a file or a symbolic link: it must be a directory of the runner's own", where)
	case err != nil:
		return nil, fmt.Errorf("open %q: %w", where, err)
	}
	defer unix.Close(fd)
	if err := checkOwnDir(fd, where); err != nil {
		return nil, err
	}
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// checkOwnDir makes sure that a directory is this user's alone: a command may have let others in.
func checkOwnDir(fd int, where string) error {
	var opened unix.Stat_t
	if err := unix.Fstat(fd, &opened); err != nil {
		return fmt.Errorf("look at %q: %w", where, err)
	}
	if int(opened.Uid) != os.Geteuid() {
		return fmt.Errorf("%q is another user's: it must be a directory of the runner's own", where)
	}
	if err := unix.Fchmod(fd, privateFilesMode); err != nil {
		return fmt.Errorf("set the permissions of %q: %w", where, err)
	}
	return nil
}

func (f *privateFiles) write(name string, content []byte) error {
	to, err := f.own.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return fmt.Errorf("make a private file: %w", err)
	}
	f.written = append(f.written, name)
	_, err = to.Write(content)
	if closeErr := to.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write a private file: %w", err)
	}
	return nil
}

// remove removes the files once, whatever the command has made of their directory. It has an error the first time only. Nil
// has no files.
func (f *privateFiles) remove() (err error) {
	if f == nil {
		return nil
	}
	f.removing.Do(func() { err = f.removeAll() })
	return err
}

func (f *privateFiles) removeAll() error {
	defer f.all.Close()
	defer f.own.Close()
	defer f.ownDir.Close()
	// The command may have taken the right to remove something. If that matters, removing fails.
	_ = f.ownDir.Chmod(privateFilesMode)
	var failed []error
	// By their own directory, which the command may have moved.
	for _, name := range f.written {
		if err := f.own.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, err)
		}
	}
	err := f.empty(time.Now().Add(maxRemoving))
	if err == nil {
		err = f.all.Remove(f.name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// maxRemoving bounds how long a call's end waits for what its command has left among its private files: the values are gone before.
const maxRemoving = 5 * time.Second

var errTooMuch = fmt.Errorf("the command left more than can be removed in %s", maxRemoving)

// empty removes what else is in the directory. The command may have made a tree of any depth: each directory in it is moved to the top
// before it is emptied, so that one is open at a time.
func (f *privateFiles) empty(until time.Time) error {
	for {
		left, err := takeNames(f.own, ".")
		if err != nil || len(left) == 0 {
			return err
		}
		for _, top := range left {
			if top.IsDir() {
				err = f.flatten(top.Name(), until)
			}
			if err == nil && time.Now().After(until) {
				err = errTooMuch
			}
			if err != nil {
				return err
			}
			if err := f.own.Remove(top.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
}

// flatten removes the files in a directory at the top, and moves its directories there.
func (f *privateFiles) flatten(name string, until time.Time) error {
	_ = f.own.Chmod(name, privateFilesMode)
	for !time.Now().After(until) {
		inner, err := takeNames(f.own, name)
		if err != nil || len(inner) == 0 {
			return err
		}
		for _, entry := range inner {
			if f.takeOut(path.Join(name, entry.Name()), entry.IsDir()) != nil {
				return errors.New("what the command left can't be removed")
			}
		}
	}
	return errTooMuch
}

func (f *privateFiles) takeOut(at string, isDir bool) error {
	if !isDir {
		return f.own.Remove(at)
	}
	if err := f.own.Chmod(at, privateFilesMode); err != nil {
		return err
	}
	return f.own.Rename(at, rand.Text())
}

// takeNames reads some of the entries of a directory, from the first that is still there.
func takeNames(in *os.Root, name string) ([]fs.DirEntry, error) {
	dir, err := in.Open(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(256)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// removeFrom removes the files, and says in the outcome when that fails.
func (f *privateFiles) removeFrom(o *result.Outcome) {
	if err := f.remove(); err != nil {
		o.Message += fmt.Sprintf(" The call's private files can't be removed: %v.", err)
	}
}

// readable lets a call read its own files.
func (f *privateFiles) readable(r *rules.Rules) *rules.Rules {
	if r == nil || r.ReadPaths == nil || f == nil {
		return r
	}
	wider := *r
	wider.ReadPaths = append(append([]string{}, r.ReadPaths...), f.path)
	return &wider
}
