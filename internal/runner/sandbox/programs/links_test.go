package programs

import (
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// flip exchanges two paths, again and again, until the test ends.
func flip(t *testing.T, a, b string) {
	t.Helper()
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
		}
	}()
	t.Cleanup(func() { stop.Store(true); <-done })
}

// A call that runs exchanges a directory of another call's rules for a link, as fast as it can: the rules never lead to where the
// link leads.
func TestADirectoryThatIsExchangedForALinkLeadsNowhereElse(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	own, link, hidden := dir+"/own", dir+"/link", dir+"/hidden"
	for _, path := range []string{own, hidden} {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(hidden, link); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(hidden + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	flip(t, own, link)
	res := &List{rules: &rules.Rules{WritePaths: []string{dir}}, writePaths: Roots([]string{dir})}
	kept, opened := 0, 0
	for range 20_000 {
		// dir is among them, as a call that can exchange something may write there.
		for _, root := range Roots([]string{own, dir}) {
			switch root {
			case own:
				kept++
			case dir:
			default:
				t.Fatalf("a rule about %s leads to %s", own, root)
			}
		}
		f, err := openPath(own + "/file")
		if err != nil {
			continue
		}
		opened++
		if !res.leadsThroughWritable(own+"/file", f) {
			t.Fatalf("%s is taken for what the rules list", f.path)
		}
		f.close()
	}
	if kept == 0 || opened == 0 {
		t.Errorf("the directory was seen %d times, and the link %d times: nothing was tried", kept, opened)
	}
}

func TestLinksAreFollowedInOneWalk(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir+"/a/b", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"up": "a/b/..", "a/abs": dir + "/up", "loop": "loop", "dangling": "none/x"} {
		if err := os.Symlink(target, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string][]string{
		"/a/b/.":      {"/a/b"},
		"/up/b":       {"/a/b", ""},
		"/a/abs/b/..": {"/a", "/a", ""},
		"/dangling":   {"/none/x", ""},
		"/none/more":  {"/none/more"},
	} {
		real, dirs := followLinks(dir + path)
		got := append([]string{real}, dirs...)
		for i := range want {
			want[i] = dir + want[i]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
	if real, _ := followLinks(dir + "/loop"); real != "" {
		t.Errorf("a loop leads to %s", real)
	}
}
