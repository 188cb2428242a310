package envresolve

import (
	"fmt"
	"strings"
	"testing"
)

// sampleFS is a tree with every kind of trap.
func sampleFS() *fakeFS {
	f := newFakeFS(
		[]string{"/workspace/src/deep", "/workspace2", "/tmp", "/etc", "/opt/app/bin", "/workspace/locked", "/workspace/..."},
		[]string{"/workspace/file"},
		map[string]string{
			"/workspace/out": "/etc", "/workspace/up": "..", "/workspace/in": "src/deep",
			"/workspace/self": "self", "/workspace/ping": "pong", "/workspace/pong": "/workspace/ping",
			"/workspace/dangling": "nowhere", "/workspace/tofile": "file", "/link": "/workspace", "/allowed": "/opt/app",
			"/workspace/empty": "", "/workspace/dot": ".", "/workspace/src/back": "../../workspace2",
		})
	f.denied["/etc"] = false
	f.add("/root", Entry{Kind: KindDirectory})
	f.denied["/root"] = true
	f.locked["/workspace/locked"] = true
	return f
}

func TestResolveDir(t *testing.T) {
	t.Parallel()
	usual := []string{"/workspace", "/tmp"}
	cases := []struct {
		name, dir, image string
		allowed          []string
		want             string
	}{
		{"an empty one is the image's", "", "/workspace", usual, "/workspace"},
		{"an image without one starts in the root", "", "", []string{"/"}, "/"},
		{"a relative one is joined with the image's", "deep", "/workspace/src", usual, "/workspace/src/deep"},
		{"dots and doubled slashes don't matter", "/workspace/.//src/./", "/", usual, "/workspace/src"},
		{"three dots are a name", "/workspace/...", "/", usual, "/workspace/..."},
		{"the root's parent is the root", "/../../tmp", "/", usual, "/tmp"},
		{"the parent of a link is the parent of where it leads", "/workspace/in/..", "/", usual, "/workspace/src"},
		{"a link's parent can lie outside", "/workspace/out/..", "/", usual, "WorkingDirNotAllowed"},
		{"and lead in again", "/workspace/out/../workspace", "/", usual, "/workspace"},
		{"a relative link is relative to its directory", "/workspace/src/back", "/", usual, "WorkingDirNotAllowed"},
		{"a link to itself ends", "/workspace/self", "/", usual, "WorkingDirNotFound"},
		{"a ring of links ends", "/workspace/ping", "/", usual, "WorkingDirNotFound"},
		{"a link to nowhere isn't found", "/workspace/dangling", "/", usual, "WorkingDirNotFound"},
		{"a link to a file isn't found", "/workspace/tofile", "/", usual, "WorkingDirNotFound"},
		{"an empty link isn't found", "/workspace/empty", "/", usual, "WorkingDirNotFound"},
		{"a link to its own directory", "/workspace/dot/dot/dot/src", "/", usual, "/workspace/src"},
		{"a name has to exist before its parent is taken", "/workspace/none/..", "/", usual, "WorkingDirNotFound"},
		{"a file has no parent that way", "/workspace/file/..", "/", usual, "WorkingDirNotFound"},
		{"a file with a slash isn't a directory", "/workspace/file/", "/", usual, "WorkingDirNotFound"},
		{"one that can't be looked at isn't found", "/root", "/", []string{"/"}, "WorkingDirNotFound"},
		{"one that can't be entered isn't found", "/workspace/locked", "/", usual, "WorkingDirNotFound"},
		{"existence is decided before permission", "/nowhere", "/", usual, "WorkingDirNotFound"},
		{"a sibling with the same prefix is outside", "/workspace2", "/", usual, "WorkingDirNotAllowed"},
		{"so is the parent of an allowed one", "/", "/", usual, "WorkingDirNotAllowed"},
		{"an allowed path may be a link", "/opt/app/bin", "/", []string{"/allowed"}, "/opt/app/bin"},
		{"an allowed path may end in a slash", "/workspace/src", "/", []string{"/workspace/"}, "/workspace/src"},
		{"an allowed path that doesn't exist allows nothing", "/workspace", "/", []string{"/none", "/workspace/file"}, "WorkingDirNotAllowed"},
		{"and doesn't take away the next one", "/workspace", "/", []string{"/none", "/workspace"}, "/workspace"},
		{"the root allows all", "/etc", "/", []string{"/"}, "/etc"},
		{"the image's own directory is allowed by default", "bin", "/opt/app", nil, "/opt/app/bin"},
		{"but not its parent", "..", "/opt/app", nil, "WorkingDirNotAllowed"},
		{"an image without a directory allows the root itself", "", "/", nil, "/"},
		{"but nothing else below it", "/etc", "/", nil, "WorkingDirNotAllowed"},
		{"nor by its own name for the root", "etc", "", nil, "WorkingDirNotAllowed"},
		{"/workspace is allowed by default", "/workspace/src", "/opt/app", nil, "/workspace/src"},
		{"a NUL byte can't cut a path short", "/workspace\x00/../etc", "/", usual, "WorkingDirNotFound"},
		{"a path longer than the kernel's isn't found", "/workspace" + strings.Repeat("/", 9000), "/", usual, "WorkingDirNotFound"},
		{"a tilde is a name", "~", "/workspace", usual, "WorkingDirNotFound"},
		{"a variable is a name", "/workspace/$HOME", "/", usual, "WorkingDirNotFound"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			req := DirRequest{WorkingDir: c.dir, ImageWorkingDir: c.image, AllowedPaths: c.allowed}
			dir, err := ResolveDir(sampleFS(), req)
			if got := dir + reasonOf(err); got != c.want {
				t.Errorf("got %q (%v), want %q", got, err, c.want)
			}
		})
	}
}

func TestDirErrorsSayWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	const orMakeIt = ", or, in a session, make it with the file action MakeDirectory"
	cases := []struct {
		name, dir string
		allowed   []string
		want      string
	}{
		{"not found", "/workspace/none", []string{"/workspace", "/tmp"},
			`working directory "/workspace/none" can't be used: "/workspace/none": no such file or directory; choose an existing directory in "/workspace", "/tmp"` + orMakeIt},
		{"relative, not found", "none/x", []string{"/workspace"},
			`working directory "/workspace/none/x" can't be used: "/workspace/none": no such file or directory; choose an existing directory in "/workspace"` + orMakeIt},
		{"not found, outside", "none/x", []string{"/tmp"},
			`working directory "/workspace/none/x" can't be used: "/workspace/none": no such file or directory; choose an existing directory in "/tmp"`},
		{"a tilde", "~/x", []string{"/workspace"},
			`working directory "/workspace/~/x" can't be used: "/workspace/~": no such file or directory; choose an existing directory in "/workspace"; here "~" is a name like others, and not the home directory`},
		{"a file", "/workspace/file/x", []string{"/tmp"},
			`working directory "/workspace/file/x" can't be used: "/workspace/file": not a directory; choose an existing directory in "/tmp"`},
		{"a loop", "/workspace/self", []string{"/tmp"},
			`working directory "/workspace/self" can't be used: "/workspace/self": too many symbolic links, or a loop of them; choose an existing directory in "/tmp"`},
		{"locked", "/workspace/locked", []string{"/tmp"},
			`working directory "/workspace/locked" can't be used: "/workspace/locked": permission denied; choose an existing directory in "/tmp"`},
		{"outside", "/etc", []string{"/tmp"},
			`working directory "/etc" is outside of the environment's allowed paths: choose one in "/tmp"`},
		{"led outside", "out", []string{"/tmp"},
			`working directory "/workspace/out" leads to "/etc", which is outside of the environment's allowed paths: choose one in "/tmp"`},
		{"a hostile name is escaped", "/a\x1b[31m\n", []string{"/tmp"},
			`working directory "/a\x1b[31m\n" can't be used: "/a\x1b[31m\n": no such file or directory; choose an existing directory in "/tmp"`},
		{"many allowed paths", "/etc", strings.Split("/1 /2 /3 /4 /5 /6 /7 /8 /9 /10", " "),
			`working directory "/etc" is outside of the environment's allowed paths: choose one in "/1", "/2", "/3", "/4", "/5", "/6", "/7", "/8" and 2 more`},
		{"a NUL byte", "/\x00", []string{"/tmp"},
			`working directory "/\x00" can't be used: the path contains a NUL byte; choose an existing directory in "/tmp"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := ResolveDir(sampleFS(), DirRequest{WorkingDir: c.dir, ImageWorkingDir: "/workspace", AllowedPaths: c.allowed})
			if err == nil || err.Error() != c.want {
				t.Errorf("\ngot  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestAHostileTreeCostsLittle(t *testing.T) {
	t.Parallel()
	// Each link leads twice through the one before: followed to the end it would take 2^60 steps.
	f := newFakeFS([]string{"/tmp/d"}, nil, map[string]string{"/tmp/l0": "d"})
	for i := 1; i <= 60; i++ {
		before := fmt.Sprintf("l%d", i-1)
		f.add(fmt.Sprintf("/tmp/l%d", i), Entry{Kind: KindLink, Target: before + "/../" + before})
	}
	deep := strings.Repeat("/a", 2000)
	f.add(deep, Entry{Kind: KindDirectory})
	for _, dir := range []string{"/tmp/l60", deep, "/tmp" + strings.Repeat("/../tmp", 550)} {
		f.lookups = 0
		_, err := ResolveDir(f, DirRequest{WorkingDir: dir})
		if f.lookups > 2*maxLookups {
			t.Errorf("%.20s took %d lookups: %v", dir, f.lookups, err)
		}
	}
}

func TestOfTheManyAllowedPathsTheLastCounts(t *testing.T) {
	t.Parallel()
	var allowed []string
	for i := range 64 {
		allowed = append(allowed, fmt.Sprintf("/none/%d", i))
	}
	dir, err := ResolveDir(sampleFS(), DirRequest{WorkingDir: "/tmp", AllowedPaths: append(allowed, "/tmp")})
	if dir != "/tmp" || err != nil {
		t.Errorf("got %q, %v", dir, err)
	}
}
