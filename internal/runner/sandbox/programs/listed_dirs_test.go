package programs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// world makes programs, and links, in directories that only the rules make writable.
func world(t *testing.T, files ...string) (root string, link func(name, to string)) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		dir := filepath.Dir(filepath.Join(root, name))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte("a program"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root, func(name, to string) {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// sealed takes this user's own right to write to directories away, until the test ends.
func sealed(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		if err := os.Chmod(dir, 0o555); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
	}
}

func resolvedAs(p *rules.Programs, writePath, path string) *List {
	r := &rules.Rules{WritePaths: []string{writePath}, Programs: p}
	return Resolve(r, Roots(r.WritePaths), path, func(int) {})
}

// A link leads where its directory's owner wants it, and never from what a call can write to out of that.
func TestAListedDirectoryCoversTheLinksInIt(t *testing.T) {
	root, link := world(t, "bin/own", "lib/npm-cli.js", "lib/data", "system/curl", "work/.bin/tool", "work/pkg/tsc", "work/evil")
	if err := os.Chmod(root+"/lib/data", 0o644); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"bin/npm": "../lib/npm-cli.js", "bin/data": "../lib/data", "bin/lib": "../lib", "bin/none": "nothing", "bin/evil": root + "/work/evil",
		"bin/through": root + "/work/hop", "work/hop": root + "/system/curl",
		"work/.bin/tsc": "../pkg/tsc", "work/.bin/curl": root + "/system/curl", "work/.bin/hop": "../hop",
	} {
		link(name, to)
	}
	sealed(t, root+"/bin")
	for name, c := range map[string]struct {
		programs          rules.Programs
		allowed, writable []string
	}{
		"outside of what it writes": {rules.Programs{Allowed: []string{root + "/bin/"}}, []string{"bin/own", "lib/npm-cli.js"}, nil},
		"with leave": {
			rules.Programs{Allowed: []string{root + "/bin/"}, AllowWritable: true},
			[]string{"bin/own", "lib/npm-cli.js", "work/evil"}, []string{"bin/evil"},
		},
		"in what it writes, with leave": {
			rules.Programs{Allowed: []string{root + "/work/.bin/"}, AllowWritable: true},
			[]string{"work/.bin/tool", "work/pkg/tsc"}, []string{"work/.bin/"},
		},
		"in what it writes": {rules.Programs{Allowed: []string{root + "/work/.bin/"}}, nil, nil},
		"without its slash": {rules.Programs{Allowed: []string{root + "/work/.bin"}, AllowWritable: true}, nil, nil},
	} {
		l := resolvedAs(&c.programs, root+"/work", "")
		var allowed []string
		for _, path := range []string{"bin/own", "lib/data", "lib/npm-cli.js", "system/curl", "work/.bin/tool", "work/evil", "work/pkg/tsc"} {
			if l.Allows(root + "/" + path) {
				allowed = append(allowed, path)
			}
		}
		var i result.Isolation
		l.Report(&i)
		var writable result.Paths
		for _, path := range c.writable {
			writable = append(writable, root+"/"+path)
		}
		if !slices.Equal(allowed, c.allowed) || !slices.Equal(i.Writable, writable) {
			t.Errorf("%s: %q may run, %q can be written to", name, allowed, i.Writable)
		}
	}
}

// It has no name, so it is refused as on nodes where the runner can make it one that can't be executed.
func TestAFileInMemoryLiesInNoDirectory(t *testing.T) {
	l := resolvedAs(&rules.Programs{Allowed: []string{"/"}, AllowWritable: true}, "/tmp", "")
	fd, err := unix.MemfdCreate("program", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f, err := newOpenFile(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if p, refused := l.judgeFile(f, f.unlistedRule()); p != nil || refused.rule != result.RuleUnnamed {
		t.Errorf("%+v may run, %+v", p, refused)
	}
}

// They have helpers like those that are listed by name, but no call chooses them by the name of a file that it makes.
func TestProgramsInAListedDirectoryHaveHelpers(t *testing.T) {
	root, link := world(t,
		"bin/make", "bin/tool", "lib/npm-cli.js", "path/sh", "path/node", "path/env", "path/mine", "tools/npm/tool", "work/make", "work/sub/tool")
	link("bin/npm", "../lib/npm-cli.js")
	sealed(t, root+"/bin", root+"/path")
	for name, c := range map[string]struct {
		programs rules.Programs
		allowed  []string
	}{
		"of the table": {rules.Programs{Allowed: []string{root + "/bin/"}}, []string{"env", "node", "sh"}},
		"of the policy": {
			rules.Programs{Allowed: []string{root + "/work/"}, AllowWritable: true, Helpers: map[string][]string{root + "/work/sub/tool": {"mine"}}},
			[]string{"mine"},
		},
		"of a directory's own name":  {rules.Programs{Allowed: []string{root + "/tools/npm/"}}, nil},
		"of a name that a call made": {rules.Programs{Allowed: []string{root + "/work/"}, AllowWritable: true}, nil},
	} {
		l := resolvedAs(&c.programs, root+"/work", root+"/path")
		var allowed []string
		for _, path := range []string{"env", "mine", "node", "sh"} {
			if l.Allows(root + "/path/" + path) {
				allowed = append(allowed, path)
			}
		}
		if !slices.Equal(allowed, c.allowed) {
			t.Errorf("%s: %q may run", name, allowed)
		}
	}
}

// Those that are many programs are asked, and their names are those in the directory.
func TestMultiCallProgramsInAListedDirectoryAreAsked(t *testing.T) {
	root, link := world(t, "bin/busybox", "bin/one", "work/busybox")
	link("bin/ls", "busybox")
	link("bin/ps", root+"/bin/busybox")
	if err := os.Link(root+"/bin/one", root+"/bin/two"); err != nil {
		t.Fatal(err)
	}
	sealed(t, root+"/bin")
	var asked []string
	l := resolvedAs(&rules.Programs{Allowed: []string{root + "/bin/", root + "/work/"}, AllowWritable: true}, root+"/work", "")
	unheld, err := l.AskMultiCall(func(program string, _ []string) (result.Outcome, error) {
		asked = append(asked, program)
		return said(appletMark), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{root + "/bin/busybox"}; !slices.Equal(asked, want) || !slices.Equal(unheld, want) {
		t.Errorf("%q are asked, %q are unheld", asked, unheld)
	}
	for _, p := range l.files {
		for name, listed := range map[string]bool{"ls": true, "ps": true, "busybox": true, "id": false} {
			if p.path == root+"/bin/busybox" && (!p.multiCall || p.names[name] != listed) {
				t.Errorf("%s is listed: %t", name, p.names[name])
			}
		}
		if p.path != root+"/bin/busybox" && p.multiCall {
			t.Errorf("names of %s are told apart, and all are listed", p.path)
		}
	}
}

// Neither the environment's interpreter nor a helper may be a program that a call can write to. An entry of the policy may.
func TestAWritableEntryIsListedThatIsAHelperToo(t *testing.T) {
	root, _ := world(t, "bin/make", "work/python", "work/tool")
	sealed(t, root+"/bin")
	for name, programs := range map[string]rules.Programs{
		"the interpreter": {Own: root + "/work/python", Allowed: []string{root + "/work/python"}},
		"a helper": {
			Allowed: []string{root + "/bin/make", root + "/work/python"}, Helpers: map[string][]string{root + "/bin/make": {root + "/work/python"}},
		},
	} {
		for _, mayWrite := range []bool{false, true} {
			programs.AllowWritable = mayWrite
			if l := resolvedAs(&programs, root+"/work", ""); l.Allows(root+"/work/python") != mayWrite || (len(l.notFound) == 0) != mayWrite {
				t.Errorf("%s, writable %t: not found are %q", name, mayWrite, l.notFound)
			}
		}
	}
}
