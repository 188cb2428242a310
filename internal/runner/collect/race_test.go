package collect

import (
	"context"
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/glob"
)

// While a tree changes in every way, what is kept is what is hashed, and nothing from outside. The helper checks both.
func TestFilesThatChangeWhileTheyAreKept(t *testing.T) {
	w := newWorld(t)
	w.request.MaxBytes = 200 << 10
	content := strings.Repeat("content ", 20<<10)
	for i := range 8 {
		w.file(fmt.Sprintf("d/f%d", i), content)
	}
	w.file("d/e/f", content)
	w.link(w.outside, "out")
	w.link(w.outside+"/canary", "d/link")
	ctx, cancel := context.WithCancel(t.Context())
	var attackers sync.WaitGroup
	attack := func(round func()) {
		attackers.Go(func() {
			for ctx.Err() == nil {
				round()
			}
		})
	}
	exchange := func(a, b string) func() {
		return func() {
			_ = unix.Renameat2(unix.AT_FDCWD, w.root+"/"+a, unix.AT_FDCWD, w.root+"/"+b, unix.RENAME_EXCHANGE)
		}
	}
	attack(exchange("d/f0", "d/link"))
	attack(exchange("d/e", "out"))
	attack(func() { grow(w.root + "/d/f1") })
	attack(func() { _ = os.Remove(w.root + "/d/f2"); _ = os.WriteFile(w.root+"/d/f2", []byte(content), 0o600) })
	attack(func() { _ = os.Truncate(w.root+"/d/f3", 0); _ = os.Truncate(w.root+"/d/f3", 100<<10) })
	attack(func() {
		_ = os.Remove(w.root + "/d/f4")
		_ = unix.Mkfifo(w.root+"/d/f4", 0o600)
		_ = os.Remove(w.root + "/d/f4")
		_ = os.WriteFile(w.root+"/d/f4", []byte(content), 0o600)
	})
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	before := 0
	for i := range rounds {
		got := w.do("d/**", "out/*", "d/e/*")
		if i == 0 {
			before = len(got.Kept)
		}
		for _, name := range []string{"d/f5", "d/f6", "d/f7"} {
			if !strings.Contains(paths(got), name) {
				t.Fatalf("%s isn't kept: %s, %s", name, paths(got), got.Message)
			}
		}
	}
	cancel()
	attackers.Wait()
	if before == 0 {
		t.Error("nothing was kept")
	}
}

// grow appends up to a size that isn't kept, and begins again.
func grow(name string) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > 300<<10 {
		_ = f.Truncate(1000)
	}
	_, _ = f.Write(make([]byte, 32<<10))
}

// matches compares name by name.
func matches(pattern, names []string) bool {
	switch {
	case len(pattern) == 0:
		return len(names) == 0
	case pattern[0] == "**":
		return matches(pattern[1:], names) || len(names) > 0 && matches(pattern, names[1:])
	case len(names) == 0:
		return false
	}
	isMatch, err := path.Match(pattern[0], names[0])
	return err == nil && isMatch && matches(pattern[1:], names[1:])
}

// FuzzGlobs holds globs to another matcher, over a real tree.
func FuzzGlobs(f *testing.F) {
	for _, seed := range []string{"**", "*", "a/*", "a/**/b", "**/b", "?", "a/b/c", "*/*", "**/a/**", "b*", "/a", "./a", "a//b", "../*", "*a", "c*/**", "c/**"} {
		f.Add(seed)
	}
	tree := []string{"a/a", "a/b/a", "a/b/b", "a/b/c/a", "a/c/b", "b/a", "b/ab/b", "ba", "c", "ab"}
	w := newWorld(f)
	for _, name := range tree {
		w.file(name, name)
	}
	simple := regexp.MustCompile(`^[a-d*?/]*$`)
	f.Fuzz(func(t *testing.T, pattern string) {
		w.t = t
		got := w.do(pattern)
		dir, _, err := glob.Split(pattern)
		if err != nil || !simple.MatchString(pattern) || strings.Contains(pattern, "***") || path.Clean("/"+pattern) != "/"+pattern {
			for i := range got.Kept {
				if content := got.Kept[i].Path; !strings.HasPrefix(content, "/") && path.Clean(content) != content {
					t.Errorf("%q matches %q", pattern, content)
				}
			}
			return
		}
		var want []string
		for _, name := range tree {
			// Where "**" stands for no name, a file that the glob itself names has nothing below it.
			if matches(strings.Split(pattern, "/"), strings.Split(name, "/")) && name != dir {
				want = append(want, name)
			}
		}
		if len(want) != len(got.Kept) {
			t.Fatalf("%q: got %s, want %s", pattern, paths(got), strings.Join(want, " "))
		}
		for _, name := range want {
			if !strings.Contains(" "+paths(got)+" ", " "+name+" ") {
				t.Errorf("%q: %s is lacking", pattern, name)
			}
		}
	})
}
