package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/spec"
)

// archiveOf makes an archive of entries; those with a size have that many bytes.
func archiveOf(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func unpackInto(t *testing.T, root, dir string, archive []byte) error {
	t.Helper()
	return Unpack(t.Context(), &Rules{FileRules: spec.FileRules{WritePaths: []string{root}}}, &spec.File{Path: dir}, bytes.NewReader(archive))
}

func mustBe(t *testing.T, err error, reason string) {
	t.Helper()
	var refused *Error
	if !errors.As(err, &refused) || refused.Reason != reason {
		t.Errorf("got %v, want %s", err, reason)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestAnArchiveOfTheRootHasNothingThatIsDenied(t *testing.T) {
	top, err := os.ReadDir("/")
	if err != nil {
		t.Fatal(err)
	}
	rules := &Rules{FileRules: spec.FileRules{ReadPaths: []string{"/"}}}
	for _, e := range top {
		rules.DeniedPaths = append(rules.DeniedPaths, "/"+e.Name())
	}
	var b bytes.Buffer
	if err := Pack(t.Context(), rules, &spec.File{Path: "/"}, &b); err != nil {
		t.Fatal(err)
	}
	if h, err := tar.NewReader(&b).Next(); err != io.EOF {
		t.Errorf("the archive has %+v, %v", h, err)
	}
}

func TestNoEntryOfAnArchiveLeadsOutOfItsDirectory(t *testing.T) {
	link := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
	}
	escaped := func(over string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: over + "/escaped", Size: 2}
	}
	for name, entries := range map[string][]tar.Header{
		"over a chain of links":      {{Typeflag: tar.TypeDir, Name: "d/"}, link("d/e", ".."), link("f", "d/e/.."), escaped("f")},
		"over a link that was there": {escaped("there")},
		"over a link to all":         {escaped("root")},
		"with a link over a link":    {link("there/escaped", "x")},
		"with a directory":           {{Typeflag: tar.TypeDir, Name: "there/escaped/"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			target := filepath.Join(root, "target")
			for _, dir := range []string{target, filepath.Join(root, "other")} {
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.Symlink("../other", filepath.Join(target, "there")), os.Symlink("/", filepath.Join(target, "root"))); err != nil {
				t.Fatal(err)
			}
			mustBe(t, unpackInto(t, root, target, archiveOf(t, entries...)), reason.PathNotAllowed)
			if exists(filepath.Join(root, "escaped")) || exists(filepath.Join(root, "other", "escaped")) || exists("/escaped") {
				t.Error("an entry is outside")
			}
		})
	}
}

func TestAnArchiveIsUnpackedAgain(t *testing.T) {
	root := t.TempDir()
	entries := []tar.Header{{Typeflag: tar.TypeReg, Name: "a", Size: 2, Mode: 0o444}, {Typeflag: tar.TypeSymlink, Name: "l", Linkname: "a"}}
	for range 2 {
		if err := unpackInto(t, root, root, archiveOf(t, entries...)); err != nil {
			t.Fatal(err)
		}
	}
	entries[1].Linkname = "b"
	if err := unpackInto(t, root, root, archiveOf(t, entries...)); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(filepath.Join(root, "l")); err != nil || target != "b" {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	entries[1].Name = "a"
	mustBe(t, unpackInto(t, root, root, archiveOf(t, entries[1])), reason.FileExists)
	if list, err := os.ReadDir(root); err != nil || len(list) != 2 {
		t.Errorf("left are %v, %v", list, err)
	}
}

func TestNothingIsNoArchive(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	mustBe(t, unpackInto(t, filepath.Dir(dir), dir, nil), reason.InvalidRequest)
	if exists(dir) {
		t.Error("the directory was made")
	}
	if err := unpackInto(t, filepath.Dir(dir), dir, archiveOf(t)); err != nil || !exists(dir) {
		t.Errorf("an archive without entries: %v", err)
	}
}

func TestAnArchiveIsToBePackedOtherwise(t *testing.T) {
	sparse := map[string]string{"GNU.sparse.major": "1"}
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeGNUSparse, Name: "--sparse"}, {Typeflag: tar.TypeReg, PAXRecords: sparse, Name: "--sparse"},
		{Typeflag: tar.TypeLink, Name: "--hard-dereference"},
	} {
		c, err := newCall(t.Context(), &Rules{FileRules: spec.FileRules{WritePaths: []string{"/"}}}, &spec.File{}, true)
		if err != nil {
			t.Fatal(err)
		}
		if err = c.unpackEntry(&h, nil); err == nil || strings.Count(err.Error(), h.Name) != 2 {
			t.Errorf("%c: %v", h.Typeflag, err)
		}
	}
}

// hookWriter calls something at its first write.
type hookWriter struct{ hook func() }

func (h *hookWriter) Write(p []byte) (int, error) {
	if h.hook != nil {
		h.hook()
		h.hook = nil
	}
	return len(p), nil
}

func TestAFileThatIsWrittenToWhileItIsPacked(t *testing.T) {
	const size = 4 << 20
	for name, test := range map[string]struct {
		flags  int
		reason string
	}{
		"in place":   {os.O_WRONLY, reason.FileChanged},
		"at its end": {os.O_WRONLY | os.O_APPEND, ""},
		"cut off":    {os.O_WRONLY | os.O_TRUNC, reason.FileChanged},
	} {
		root := t.TempDir()
		file := filepath.Join(root, "f")
		if err := os.WriteFile(file, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		// Two writes in the same tick of the kernel's clock have the same time.
		longAgo := time.Now().Add(-time.Hour)
		if err := os.Chtimes(file, longAgo, longAgo); err != nil {
			t.Fatal(err)
		}
		w := &hookWriter{hook: func() {
			f, err := os.OpenFile(file, test.flags, 0)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = f.Write(bytes.Repeat([]byte("b"), 100))
			_ = f.Close()
		}}
		err := Pack(t.Context(), &Rules{FileRules: spec.FileRules{ReadPaths: []string{root}, MaxReadBytes: 1 << 30}}, &spec.File{Path: root}, w)
		if test.reason == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		} else if test.reason != "" {
			mustBe(t, err, test.reason)
		}
	}
}

// What one answer may have doesn't bound what a checksum is compared with.
func TestALargeFileIsReplacedByItsChecksum(t *testing.T) {
	root := t.TempDir()
	large := filepath.Join(root, "large")
	if err := os.WriteFile(large, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	rules := &Rules{FileRules: spec.FileRules{WritePaths: []string{root}, ReadPaths: []string{root}, MaxReadBytes: 100}}
	source, err := OpenSource(t.Context(), rules, &spec.File{Path: large})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if done, err := source.SumSome(t.Context(), 1<<20); !done || err != nil {
		t.Fatal(done, err)
	}
	target, err := OpenTarget(t.Context(), rules, &spec.File{Path: large, IfSHA256: &source.SHA256})
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	if _, err := target.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := target.Commit(); err != nil {
		t.Error(err)
	}
}

// Until it is whole, a file has no name.
func TestAnUploadHasNoNameBeforeItIsWhole(t *testing.T) {
	root := t.TempDir()
	target, err := OpenTarget(t.Context(), &Rules{FileRules: spec.FileRules{WritePaths: []string{root}}}, &spec.File{Path: filepath.Join(root, "f")})
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	if _, err := target.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(root); err != nil || len(list) != 0 {
		t.Errorf("there are %v, %v", list, err)
	}
}

// Some file systems have no files without a name. There the file has a hidden one until it is whole.
func TestAnUploadWhereFilesNeedANameLeavesNothingEither(t *testing.T) {
	defer func(before int) { unnamed = before }(unnamed)
	// A directory can't be opened for writing.
	unnamed = 0
	root := t.TempDir()
	rules := &Rules{FileRules: spec.FileRules{WritePaths: []string{root}}}
	upload := func(content string, commit bool) {
		t.Helper()
		target, err := OpenTarget(t.Context(), rules, &spec.File{Path: filepath.Join(root, "f")})
		if err != nil {
			t.Fatal(err)
		}
		defer target.Close()
		if _, err := target.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
		if list, err := os.ReadDir(root); err != nil || len(list) == 0 || !isTemporary(list[0].Name()) {
			t.Errorf("there are %v, %v", list, err)
		}
		if commit {
			if _, err := target.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, content := range []string{"one", "two"} {
		upload(content, true)
		upload("given up", false)
		if list, err := os.ReadDir(root); err != nil || len(list) != 1 {
			t.Errorf("left are %v, %v", list, err)
		}
		if got, err := os.ReadFile(filepath.Join(root, "f")); err != nil || string(got) != content {
			t.Errorf("the file has %q, %v", got, err)
		}
	}
}
