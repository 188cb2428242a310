package programs

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// execution is what a thread asks to execute: addresses are of its memory.
type execution struct {
	dirfd           int
	path, argv, env uint64
	flags           int
}

// verdict is what the gate thinks of an execution.
type verdict struct {
	// errno is what the thread gets; 0 lets it go on.
	errno unix.Errno
	// path is the program, or what was refused. rule is empty unless it was refused.
	path, rule string
	// asked is the path that was asked for.
	asked string
	// interpreter is the name of one that is still to be judged.
	interpreter string
}

func refusedAs(path, rule string) verdict {
	return verdict{errno: unix.EACCES, path: path, rule: rule}
}

// failed is an execution that fails by itself: nothing was refused.
func failed(errno unix.Errno) verdict { return verdict{errno: errno} }

// maxScripts is how often the interpreter of a script may be a script.
const maxScripts = 4

// look judges what a thread asks to execute.
func (l *List) look(t kernel.Thread, e execution) verdict {
	path, errno := t.Text(e.path, kernel.MaxPath)
	switch errno {
	case 0:
	case unix.EFAULT, unix.ENAMETOOLONG:
		return failed(errno)
	default:
		return refusedAs(t.Executable(), result.RuleUnreadable)
	}
	f, errno := l.open(t, e.dirfd, path, e.flags)
	if errno != 0 {
		return failed(errno)
	}
	defer f.close()
	if !f.isRegular() {
		return failed(unix.EACCES)
	}
	v := l.judge(t, f, path, e)
	for range maxScripts {
		if v.interpreter == "" {
			v.asked = path
			return v
		}
		v = l.judgeInterpreter(t, v)
	}
	return failed(unix.ELOOP)
}

// judge judges a file.
func (l *List) judge(t kernel.Thread, f *openFile, asked string, e execution) verdict {
	p, refused := l.judgeFile(f, f.unlistedRule())
	if p == nil {
		return refused
	}
	path := f.path
	if p.multiCall {
		var rule string
		if path, rule = p.judgeName(f, asked, t.Arguments(e.argv, 2)); rule != "" {
			return refusedAs(path, rule)
		}
	}
	return verdict{path: path, interpreter: p.script}
}

// judgeFile returns the listed program that a file is, or why it may not be executed by any name: rule is that for a file that isn't
// listed.
func (l *List) judgeFile(f *openFile, rule string) (*program, verdict) {
	p := l.find(f)
	switch {
	case p == nil && !f.isExecutable() && !f.isInMemory():
		return nil, failed(unix.EACCES)
	case p == nil:
		return nil, refusedAs(f.path, rule)
	case p.isLoader:
		return nil, refusedAs(f.path, result.RuleLoader)
	case p.unreadable && f.isExecutable():
		return nil, refusedAs(f.path, result.RuleUnreadableFile)
	default:
		return p, verdict{}
	}
}

// isInMemory reports whether a file was made by memfd_create. If it isn't executable, the gate made it so, which is a refusal.
func (f *openFile) isInMemory() bool { return strings.HasPrefix(f.path, "/memfd:") }

// unlistedRule is why a file may not run that isn't listed.
func (f *openFile) unlistedRule() string {
	if !f.isNamed || !filepath.IsAbs(f.path) {
		return result.RuleUnnamed
	}
	return result.RuleNotListed
}

// judgeInterpreter judges the interpreter of a script, as the kernel finds it: from the thread's directory.
func (l *List) judgeInterpreter(t kernel.Thread, v verdict) verdict {
	f, errno := l.open(t, unix.AT_FDCWD, v.interpreter, 0)
	if errno != 0 {
		return failed(errno)
	}
	defer f.close()
	p, refused := l.judgeFile(f, result.RuleInterpreter)
	switch {
	case p == nil:
		return refused
	case p.multiCall && !p.names[filepath.Base(v.interpreter)]:
		return refusedAs(filepath.Join(filepath.Dir(f.path), filepath.Base(v.interpreter)), result.RuleInterpreter)
	default:
		return verdict{path: f.path, interpreter: p.script}
	}
}
