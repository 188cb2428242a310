package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/output"
)

func TestWhatGlobsMatchIsKept(t *testing.T) {
	w := newWorld(t)
	w.request.Home = w.root + "/out"
	for _, name := range []string{"plot.png", "out/b.csv", "out/a.csv", "out/deep/er/c.csv", "out/.git/d.csv", "note.txt", "empty"} {
		w.file(name, "content of "+name)
	}
	w.file("empty", "")
	for _, c := range []struct {
		globs []string
		want  string
	}{
		{[]string{"plot.png"}, "plot.png"},
		{[]string{"out/*.csv"}, "out/a.csv out/b.csv"},
		{[]string{"out/**"}, "out/a.csv out/b.csv out/deep/er/c.csv"},
		{[]string{"**/*.csv", "note.txt"}, "out/a.csv out/b.csv out/deep/er/c.csv note.txt"},
		{[]string{"note.txt", "*.{png,txt}"}, "note.txt plot.png"},
		{[]string{"~/?.csv"}, w.root + "/out/a.csv " + w.root + "/out/b.csv"},
		{[]string{w.root + "/out/?.csv"}, w.root + "/out/a.csv " + w.root + "/out/b.csv"},
		{[]string{"out/a.csv", w.root + "/out/*.csv", "out/a.csv"}, "out/a.csv " + w.root + "/out/b.csv"},
		{[]string{"empty"}, "empty"},
		{[]string{"out", "out/deep"}, ""},
	} {
		got := w.do(c.globs...)
		if paths(got) != c.want || got.Omitted != 0 || (got.Message == "") != (c.want != "") {
			t.Errorf("%q: got %s, want %s; %d omitted, %s", c.globs, paths(got), c.want, got.Omitted, got.Message)
		}
	}
	got := w.do("nothing", "missing/*.png", "**/*.none")
	for _, glob := range []string{`"nothing"`, `"missing/*.png"`, `"**/*.none"`} {
		if !strings.Contains(got.Message, glob+" matches no file.") {
			t.Errorf("%s isn't mentioned: %s", glob, got.Message)
		}
	}
}

func TestAGlobThatCannotBeCollectedIsSaidAndOthersAre(t *testing.T) {
	w := newWorld(t)
	w.file("a", "x")
	w.link(w.outside, "out")
	w.link("missing", "dangling")
	for _, glob := range []string{w.outside + "/canary", "../outside/*", "/etc/passwd", "/proc/self/*", "/**", "out/canary", "out/*", "[", "a/../a", "dangling/*", "a/b", ""} {
		got := w.do(glob, "a")
		if paths(got) != "a" || !strings.Contains(got.Message, fmt.Sprintf("%q", glob)) {
			t.Errorf("%s: got %s, %s", glob, paths(got), got.Message)
		}
	}
	w.request.WritePaths = nil
	if got := w.do("a"); paths(got) != "" || !strings.Contains(got.Message, "allow") {
		t.Errorf("without write paths: got %s, %s", paths(got), got.Message)
	}
	w.request.WritePaths = []string{w.root}
	w.request.WorkingDir = "/"
	if got := w.do("**/a", "etc/passwd", strings.TrimPrefix(w.root, "/")+"/a"); paths(got) != strings.TrimPrefix(w.root, "/")+"/a" {
		t.Errorf("from the root: got %s, %s", paths(got), got.Message)
	}
}

func TestLinksAreFollowedToFilesOnlyAndNeverOut(t *testing.T) {
	w := newWorld(t)
	w.file("real/a", "inside")
	w.file("secret/b", "denied")
	w.request.DeniedPaths = []string{"secret", "*.key"}
	w.file("x.key", "denied")
	w.link("real/a", "in")
	w.link(w.root+"/real/a", "absolute")
	w.link(w.outside+"/canary", "out")
	w.link("../outside/canary", "up")
	w.link("secret/b", "to-denied")
	w.link("x.key", "to-key")
	w.link("real", "directory")
	w.link("loop", "loop")
	w.link("/proc/self/exe", "magic")
	w.link("/dev/zero", "zero")
	got := w.do("*")
	if paths(got) != "absolute in" || got.Omitted != 7 {
		t.Errorf("got %s, %d omitted: %s", paths(got), got.Omitted, got.Message)
	}
	// Where the glob itself names the link, it is followed as paths are.
	if got := w.do("directory/*"); paths(got) != "directory/a" {
		t.Errorf("through a link: %s, %s", paths(got), got.Message)
	}
	if got := w.do("secret/b", "**/b", "x.key", w.root+"/secret/*"); len(got.Kept) != 0 || got.Message == "" {
		t.Errorf("denied, and kept: %s", paths(got))
	}
	// A link and its file are two names, whichever comes first.
	w.link("a", "real/A")
	w.link("a", "real/z")
	if got := w.do("real/*", w.root+"/real/a"); paths(got) != "real/A real/a real/z" || got.Omitted != 0 {
		t.Errorf("beside its file: %s, %d omitted: %s", paths(got), got.Omitted, got.Message)
	}
}

func TestWhatIsNoFileIsNotOpened(t *testing.T) {
	w := newWorld(t)
	w.file("file", "x")
	// Whoever opened one of them would wait, or wake who waits.
	if err := unix.Mkfifo(w.root+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(w.root+"/socket", unix.S_IFSOCK|0o600, 0); err != nil {
		t.Fatal(err)
	}
	want := int64(2)
	if unix.Mknod(w.root+"/device", unix.S_IFCHR|0o600, 1<<8|5) == nil {
		want++
	}
	w.link("fifo", "to-fifo")
	got := w.do("*")
	if paths(got) != "file" || got.Omitted != want+1 || !strings.Contains(got.Message, "regular files") {
		t.Errorf("got %s, %d omitted: %s", paths(got), got.Omitted, got.Message)
	}
}

func TestWhatIsOverABoundIsLeftOutAndCounted(t *testing.T) {
	w := newWorld(t)
	w.request.MaxBytes, w.request.MaxTotalBytes = 100, 250
	for i, size := range []int{100, 101, 100, 100, 50, 1} {
		w.file(fmt.Sprintf("f%d", i), strings.Repeat("x", size))
	}
	got := w.do("*")
	if paths(got) != "f0 f2 f4" || got.Omitted != 3 {
		t.Errorf("got %s, %d omitted: %s", paths(got), got.Omitted, got.Message)
	}
	for _, part := range []string{`1 larger than 100 bytes, such as "f1".`, `2 that don't fit into 250 bytes in total, such as "f3".`} {
		if !strings.Contains(got.Message, part) {
			t.Errorf("the message lacks %q: %s", part, got.Message)
		}
	}
	if err := os.Truncate(w.root+"/f1", 1<<40); err != nil {
		t.Fatal(err)
	}
	if got := w.do("f1"); got.Omitted != 1 {
		t.Errorf("a file with a hole of a TiB: %+v", got)
	}
	w.request.MaxCount = 0
	if got := w.do("*"); len(got.Kept) != 0 || got.Omitted != 6 {
		t.Errorf("of a policy that keeps none: %+v", got)
	}
}

func TestTenThousandMatches(t *testing.T) {
	w := newWorld(t)
	for i := range 10_000 {
		if err := os.WriteFile(fmt.Sprintf("%s/f%05d", w.root, i), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.request.MaxCount = 1 << 30
	before := descriptors(t)
	got := w.do("**", "f*")
	if len(got.Kept) != 100 || got.Kept[99].Path != "f00099" || got.Omitted < 9900 || !strings.Contains(got.Message, "more than the 100 files") {
		t.Errorf("%d kept, %d omitted: %s", len(got.Kept), got.Omitted, got.Message)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestPathsThatAStatusCannotHold(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("d/", 130)
	for _, name := range []string{"a\xffb", "\xed\xa0\x80", strings.Repeat("<", 50), long + "f", strings.Repeat("é", 120) + "/" + strings.Repeat("é", 20)} {
		w.file(name, "x")
	}
	for _, name := range []string{"new\nline", "quote\"", "tab\t", "\x01", "ünï", " ", "-rf", "\u202e", strings.Repeat("é", 125)} {
		w.file(name, "x")
	}
	got := w.do("**")
	if len(got.Kept) != 5 || got.Omitted != 9 || !strings.Contains(got.Message, "4 whose path has control characters") || !strings.Contains(got.Message, "5 whose path isn't UTF-8, or takes more than 256 bytes") {
		t.Errorf("kept %q, %d omitted: %s", paths(got), got.Omitted, got.Message)
	}
	if got := w.do("a*"); got.Omitted != 1 || !strings.Contains(got.Message, `\xff`) {
		t.Errorf("got %+v", got)
	}
}

func TestAFullFileSystemCostsTheFilesOnlyThatDoNotFit(t *testing.T) {
	w := newWorld(t)
	if err := unix.Mount("tmpfs", w.request.Dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("a small file system can't be mounted: ", err)
	}
	dir := w.request.Dir
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	w.file("a", strings.Repeat("a", 100<<10))
	w.file("b", strings.Repeat("b", 300<<10))
	w.file("c", strings.Repeat("c", 100<<10))
	got := w.do("*")
	if paths(got) != "a c" || got.Omitted != 1 || !strings.Contains(got.Message, "1 for which the pod has no room") {
		t.Errorf("got %s, %d omitted: %s", paths(got), got.Omitted, got.Message)
	}
	if err := os.WriteFile(w.request.Dir+"/the command's", make([]byte, 200<<10), 0o600); err != nil {
		t.Errorf("the command has no room: %v", err)
	}
	w.request.Dir = filepath.Join(w.request.Dir, "missing")
	if got := w.do("a"); got.Omitted != 1 || got.Message == "" {
		t.Errorf("without a directory: %+v", got)
	}
}

func TestItEndsWithItsContextAndKeepsWhatIsThere(t *testing.T) {
	w := newWorld(t)
	w.file("a", "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := w.doWith(ctx, "*"); len(got.Kept) != 0 || !strings.Contains(got.Message, "stopped before its end") {
		t.Errorf("got %+v", got)
	}
}

// whenAsked does something whenever somebody asks whether the work goes on, which is so before each part of a file.
type whenAsked struct {
	context.Context
	do func()
}

func (c *whenAsked) Err() error {
	c.do()
	return nil
}

func TestAFileThatIsWrittenToIsNotKeptTorn(t *testing.T) {
	for name, c := range map[string]struct {
		flags  int
		isKept bool
	}{"in place": {os.O_WRONLY, false}, "at its end": {os.O_WRONLY | os.O_APPEND, true}} {
		w := newWorld(t)
		w.file("a", strings.Repeat("x", 512<<10))
		longAgo := time.Now().Add(-time.Hour)
		// Two writes in the same tick of the kernel's clock have the same time.
		ago := func() {
			if err := os.Chtimes(filepath.Join(w.root, "a"), longAgo, longAgo); err != nil {
				t.Error(err)
			}
			longAgo = longAgo.Add(time.Second)
		}
		// One that never stops growing has no end.
		left := 30
		ctx := &whenAsked{Context: t.Context(), do: func() {
			if left--; left < 0 {
				return
			}
			f, err := os.OpenFile(filepath.Join(w.root, "a"), c.flags, 0)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = f.WriteString("new")
			_ = f.Close()
			ago()
		}}
		got := w.doWith(ctx, "a")
		if (len(got.Kept) == 1) != c.isKept || !c.isKept && !strings.Contains(got.Message, "written to meanwhile") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestWhatIsDroppedIsNotRead(t *testing.T) {
	w := newWorld(t)
	w.file("a", "x")
	r := w.request
	r.Globs = []string{"a"}
	files, _ := Do(t.Context(), &r)
	reader := files.Open("a")
	if files.Open("b") != nil || reader.Info().Bytes != 1 {
		t.Errorf("the file is %+v", reader.Info())
	}
	if _, err := reader.ReadAt(t.Context(), make([]byte, 1), -1); err == nil {
		t.Error("there is something before the start")
	}
	if _, err := reader.ReadAt(t.Context(), make([]byte, 1), 1); !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %v", err)
	}
	files.Drop()
	if _, err := reader.ReadAt(t.Context(), make([]byte, 1), 0); !errors.Is(err, output.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	files.Drop()
}
