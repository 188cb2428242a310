package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/spec"
)

func TestWrite(t *testing.T) {
	w := newWorld(t)
	content := "line\x00\xff\n"
	_, result := w.must(spec.File{Operation: spec.OperationWrite, Path: "new/dirs/f", Content: []byte(content)})
	want := Result{
		File:     reason.File{Path: w.root + "/new/dirs/f", Bytes: new(int64(7)), SHA256: sumOf([]byte(content)), Created: true},
		Redacted: map[string]int64{},
	}
	if !reflect.DeepEqual(result, want) || w.content("new/dirs/f") != content {
		t.Errorf("%+v", result)
	}
	_, result = w.must(spec.File{Operation: spec.OperationWrite, Path: "new/dirs/f"})
	if result.Created || w.content("new/dirs/f") != "" {
		t.Errorf("%+v", result)
	}
	w.checkNothingLeft()
}

func mode(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatUint(uint64(info.Mode().Perm()), 8)
}

func TestModes(t *testing.T) {
	w := newWorld(t)
	write := func(name string, m *uint32) string {
		w.must(spec.File{Operation: spec.OperationWrite, Path: name, Mode: m, Content: []byte("x")})
		return mode(t, w.root+"/"+name)
	}
	if got := write("new", nil); got != "644" {
		t.Errorf("a new file: %s", got)
	}
	if got := write("script", new(uint32(0o777))); got != "777" {
		t.Errorf("with a mode: %s", got)
	}
	if err := os.Chmod(w.file("kept", ""), 0o660|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if got := write("kept", nil); got != "660" {
		t.Errorf("replaced: %s", got)
	}
	if info, _ := os.Stat(w.root + "/kept"); info.Mode()&os.ModeSetuid != 0 {
		t.Error("a file that was written kept its setuid bit")
	}
	w.must(spec.File{Operation: spec.OperationEdit, Path: "kept", OldString: "x", NewString: "y"})
	if got := mode(t, w.root+"/kept"); got != "660" {
		t.Errorf("edited: %s", got)
	}
	w.must(spec.File{Operation: spec.OperationMakeDirectory, Path: "a/b", Mode: new(uint32(0o700))})
	if a, b := mode(t, w.root+"/a"), mode(t, w.root+"/a/b"); a != "755" || b != "700" {
		t.Errorf("directories: %s, %s", a, b)
	}
	if err := os.Chmod(w.dir("volume"), 0o775|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	w.must(spec.File{Operation: spec.OperationMakeDirectory, Path: "volume/d"})
	if info, _ := os.Stat(w.root + "/volume/d"); info.Mode()&os.ModeSetgid == 0 {
		t.Error("a directory of a volume with a group lost its setgid bit")
	}
	w.refused(spec.File{Operation: spec.OperationWrite, Path: "f", Mode: new(uint32(0o4755))}, reason.InvalidRequest, "0777")
	w.refused(spec.File{Operation: spec.OperationMakeDirectory, Path: "f", Mode: new(uint32(0o1777))}, reason.InvalidRequest, "0777")
}

func TestWriteKeepsTheOwner(t *testing.T) {
	needRoot(t)
	w := newWorld(t)
	if err := os.Chown(w.file("f", ""), 1234, 4321); err != nil {
		t.Fatal(err)
	}
	w.must(spec.File{Operation: spec.OperationWrite, Path: "f", Content: []byte("x")})
	var st unix.Stat_t
	if err := unix.Stat(w.root+"/f", &st); err != nil || st.Uid != 1234 || st.Gid != 4321 {
		t.Errorf("%d:%d, %v", st.Uid, st.Gid, err)
	}
}

func TestWriteThroughALink(t *testing.T) {
	w := newWorld(t)
	w.file("d/target", "old")
	w.link("d/target", "link")
	w.link(w.root+"/d/new", "to-new")
	_, result := w.must(spec.File{Operation: spec.OperationWrite, Path: "link", Content: []byte("new")})
	if result.Path != w.root+"/d/target" || w.content("d/target") != "new" {
		t.Errorf("%+v", result)
	}
	w.must(spec.File{Operation: spec.OperationWrite, Path: "to-new", Content: []byte("made")})
	if w.content("d/new") != "made" {
		t.Error("the link's target wasn't made")
	}
	for _, link := range []string{"link", "to-new"} {
		if info, err := os.Lstat(w.root + "/" + link); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s was replaced: %v", link, err)
		}
	}
}

func TestConditionalWrite(t *testing.T) {
	w := newWorld(t)
	write := func(name, content string, sum string) spec.File {
		return spec.File{Operation: spec.OperationWrite, Path: name, Content: []byte(content), IfSHA256: &sum}
	}
	w.must(write("d/f", "1", ""))
	w.refused(write("d/f", "2", ""), reason.FileExists, "ifSHA256")
	w.refused(write("d/f", "2", sumOf([]byte("x"))), reason.FileChanged, "read it again")
	w.must(write("d/f", "2", strings.ToUpper(sumOf([]byte("1")))))
	w.refused(write("d/missing", "2", sumOf(nil)), reason.FileChanged, "exist")
	w.refused(write("e/f", "2", sumOf(nil)), reason.FileNotFound, "e")
	w.must(write("d/f", "2", "*"))
	w.refused(write("d/missing", "2", "*"), reason.FileChanged, "exist")
	w.refused(write("d/f", "2", "abc"), reason.InvalidRequest, "64")
	w.refused(write("d/f", "2", strings.Repeat("g", 64)), reason.InvalidRequest, "64")
	w.dir("dir")
	w.refused(write("dir", "2", ""), reason.IsDirectory, "")
	w.link("nowhere", "dangling")
	w.must(write("dangling", "2", ""))
	if w.content("d/f") != "2" || w.content("nowhere") != "2" {
		t.Error("wrong content")
	}
	w.rules.MaxReadBytes = 1
	w.file("large", "xx")
	w.must(write("large", "y", sumOf([]byte("xx"))))
	w.checkNothingLeft()
}

// TestWriteIsExclusive makes a file between the look and the rename.
func TestWriteIsExclusive(t *testing.T) {
	w := newWorld(t)
	c, p := w.opened("f", how{follow: true, missing: true})
	w.file("f", "made meanwhile")
	err := c.replace(p, strings.NewReader("x"), 0o644, condition{absent: true})
	if reasonOf(err) != reason.FileExists || w.content("f") != "made meanwhile" {
		t.Errorf("%v, %q", err, w.content("f"))
	}
	err = c.replace(p, strings.NewReader("x"), 0o644, condition{sha256: sumOf([]byte("made meanwhile"))})
	if reasonOf(err) != reason.FileChanged {
		t.Errorf("%v", err)
	}
	if err := os.Remove(w.root + "/f"); err != nil {
		t.Fatal(err)
	}
	if err = c.replace(p, strings.NewReader("x"), 0o644, condition{present: true}); reasonOf(err) != reason.FileChanged {
		t.Errorf("gone meanwhile: %v", err)
	}
	w.checkNothingLeft()
}

// opened is a place in the middle of an operation.
func (w *world) opened(path string, how how) (*call, *place) {
	w.t.Helper()
	rules, err := w.rules.compile(true)
	if err != nil {
		w.t.Fatal(err)
	}
	c := &call{ctx: w.t.Context(), rules: rules, req: &spec.File{WorkingDir: w.root}}
	p, err := c.resolve(path, how)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.close)
	return c, p
}

// TestWhatWasFoundIsWhatIsOpened replaces a file between the look and the opening.
func TestWhatWasFoundIsWhatIsOpened(t *testing.T) {
	for _, kind := range []string{"file", "link", "pipe", "directory"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			path := w.file("f", "old")
			_, p := w.opened("f", how{})
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			switch kind {
			case "file":
				w.file("f", "new")
			case "link":
				w.link(w.outside+"/canary", "f")
			case "pipe":
				if err := unix.Mkfifo(path, 0o666); err != nil {
					t.Fatal(err)
				}
			case "directory":
				w.dir("f")
			}
			fd, err := p.openFile()
			if kind != "file" {
				if err == nil || fd >= 0 {
					t.Errorf("opened a %s", kind)
				}
				return
			}
			defer sys.Close(fd)
			if st, statErr := sys.Fstat(fd); err != nil || statErr != nil || !sys.IsSame(&st, &p.st) {
				t.Error("the file was replaced, and what was found isn't what was opened: ", err)
			}
		})
	}
}

func TestFailedWritesLeaveNothing(t *testing.T) {
	w := newWorld(t)
	w.refused(spec.File{Operation: spec.OperationWrite, Path: "f", Content: make([]byte, DefaultMaxBytes+1)}, reason.FileTooLarge, "4194304 (the default)")
	w.rules.MaxWriteBytes = 10
	w.file("f", "old")
	w.dir("d")
	w.refused(spec.File{Operation: spec.OperationWrite, Path: "new/f", Content: make([]byte, 11)}, reason.FileTooLarge, "maxWriteBytes")
	w.refused(spec.File{Operation: spec.OperationWrite, Path: "new/dir/"}, reason.IsDirectory, "slash")
	w.refused(spec.File{Operation: spec.OperationWrite, Path: "new/" + strings.Repeat("x", 300)}, reason.InvalidRequest, "255")
	w.refused(spec.File{Operation: spec.OperationWrite, Path: "new/../f"}, reason.FileNotFound, "new")
	w.refused(spec.File{Operation: spec.OperationWrite, Path: "f/new"}, reason.NotDirectory, "")
	w.refused(spec.File{Operation: spec.OperationWrite, Path: "d"}, reason.IsDirectory, "")
	w.refused(spec.File{Operation: spec.OperationWrite, Path: "f/"}, reason.NotDirectory, "")
	w.refused(spec.File{Operation: spec.OperationMakeDirectory, Path: "f"}, reason.FileExists, "File")
	w.refused(spec.File{Operation: spec.OperationMakeDirectory, Path: "new/" + strings.Repeat("x", 300)}, reason.InvalidRequest, "255")
	if _, err := os.Stat(w.root + "/new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a parent is left: %v", err)
	}
	c, p := w.opened("f", how{})
	failed := errors.New("failed")
	if err := c.replace(p, readerFunc(func(b []byte) (int, error) { return 5, failed }), 0o644, condition{}); err != failed {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.ctx = ctx
	stop := readerFunc(func(b []byte) (int, error) { cancel(); return 5, nil })
	if err := c.replace(p, stop, 0o644, condition{}); err != context.Canceled {
		t.Error(err)
	}
	if w.content("f") != "old" {
		t.Error("the file was changed")
	}
	w.checkNothingLeft()
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestEdit(t *testing.T) {
	tests := []struct {
		name, content, old, with string
		all                      bool
		want                     string
		replaced                 int
		reason                   string
		says                     string
	}{
		{name: "once", content: "a b c", old: "b", with: "xyz", want: "a xyz c", replaced: 1},
		{name: "all", content: "a b a", old: "a", with: "", all: true, want: " b ", replaced: 2},
		{name: "one of all", content: "a b", old: "a", with: "c", all: true, want: "c b", replaced: 1},
		{name: "bytes that aren't text", content: "\x00\xff\xfe", old: "\xff", with: "\x01", want: "\x00\x01\xfe", replaced: 1},
		{name: "several lines", content: "a\nb\nc\n", old: "a\nb\n", with: "", want: "c\n", replaced: 1},
		{name: "the whole", content: "a", old: "a", with: "", want: "", replaced: 1},
		{name: "not there", content: "a", old: "b", with: "c", reason: reason.EditNotFound, says: "0 times"},
		{name: "twice", content: "a b a", old: "a", with: "c", reason: reason.EditAmbiguous, says: "2 times"},
		{name: "overlapping", content: "aaa", old: "aa", with: "b", reason: reason.EditAmbiguous, says: "2 times"},
		{name: "longer than the file", content: "a", old: strings.Repeat("a", 1000), with: "c", reason: reason.EditNotFound},
		{name: "nothing", content: "a", old: "", with: "c", reason: reason.InvalidRequest, says: "Write"},
		{name: "the same", content: "a", old: "a", with: "a", reason: reason.InvalidRequest, says: "same"},
		{name: "too much", content: "aaaaaaaaaa", old: "a", with: strings.Repeat("b", 11), all: true, reason: reason.FileTooLarge, says: "110"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.rules.MaxWriteBytes = 100
			w.file("f", test.content)
			r := spec.File{Operation: spec.OperationEdit, Path: "f", OldString: test.old, NewString: test.with, ReplaceAll: test.all}
			if test.reason != "" {
				w.refused(r, test.reason, test.says)
				test.want = test.content
			} else if _, result := w.must(r); number(result.Replaced) != test.replaced || result.SHA256 != sumOf([]byte(test.want)) ||
				*result.Bytes != int64(len(test.want)) {
				t.Errorf("%+v", result)
			}
			if got := w.content("f"); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			w.checkNothingLeft()
		})
	}
}

func TestConditionalEdit(t *testing.T) {
	w := newWorld(t)
	w.file("f", "a")
	sum := sumOf([]byte("b"))
	w.refused(spec.File{Operation: spec.OperationEdit, Path: "f", OldString: "a", IfSHA256: &sum}, reason.FileChanged, "read it again")
	w.refused(spec.File{Operation: spec.OperationEdit, Path: "f", OldString: "a", IfSHA256: new("")}, reason.FileExists, "")
	w.refused(spec.File{Operation: spec.OperationEdit, Path: "missing", OldString: "a"}, reason.FileNotFound, "")
	w.rules.MaxReadBytes = 1
	w.file("large", "xx")
	w.refused(spec.File{Operation: spec.OperationEdit, Path: "large", OldString: "x"}, reason.FileTooLarge, "2 bytes")
	sum = sumOf([]byte("a"))
	w.must(spec.File{Operation: spec.OperationEdit, Path: "f", OldString: "a", NewString: "c", IfSHA256: &sum})
}

// TestEditsAtOnce has many edits of one file: each that succeeds is in it, the others say that it changed.
func TestEditsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.file("f", "0")
	const workers, rounds = 8, 25
	var all sync.WaitGroup
	var mu sync.Mutex
	succeeded := 0
	for range workers {
		all.Go(func() {
			for range rounds {
				content, err := os.ReadFile(w.root + "/f")
				if err != nil {
					t.Error(err)
					return
				}
				n, err := strconv.Atoi(string(content))
				if err != nil {
					t.Errorf("half a file: %q", content)
					return
				}
				r := spec.File{Operation: spec.OperationEdit, Path: "f", OldString: string(content), NewString: strconv.Itoa(n + 1)}
				_, _, err = w.do(r)
				switch reasonOf(err) {
				case "":
					mu.Lock()
					succeeded++
					mu.Unlock()
				case reason.FileChanged, reason.EditNotFound, reason.EditAmbiguous:
				default:
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := w.content("f"); got != strconv.Itoa(succeeded) || succeeded == 0 {
		t.Errorf("%s after %d edits", got, succeeded)
	}
	w.checkNothingLeft()
}

// TestCreationsAtOnce lets one of many make a file.
func TestCreationsAtOnce(t *testing.T) {
	w := newWorld(t)
	for round := range 20 {
		name := filepath.Join("d", strconv.Itoa(round))
		var all sync.WaitGroup
		results := make([]error, 8)
		for i := range results {
			all.Go(func() {
				_, _, results[i] = w.do(spec.File{
					Operation: spec.OperationWrite, Path: name, Content: []byte(strconv.Itoa(i)), IfSHA256: new(""),
				})
			})
		}
		all.Wait()
		winner := -1
		for i, err := range results {
			if err == nil && winner < 0 {
				winner = i
			} else if reasonOf(err) != reason.FileExists {
				t.Errorf("%d: %v", i, err)
			}
		}
		if got := w.content(name); got != strconv.Itoa(winner) {
			t.Errorf("%s, made by %d", got, winner)
		}
	}
	w.checkNothingLeft()
}
