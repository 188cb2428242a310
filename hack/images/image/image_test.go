package image

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTheSameBinariesGiveTheSameImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, "program a")
	write(t, b, "program b")
	binary := func(files ...File) Binary {
		return Binary{Tag: "example.test/x:1", Config: v1.Config{Entrypoint: []string{"/bin/a"}, User: "65532"}, Files: files}
	}
	one, two := filepath.Join(dir, "1.tar"), filepath.Join(dir, "2.tar")
	if err := binary(File{a, "/bin/a"}, File{b, "/opt/x/b"}).Write(one); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(a, later, later); err != nil {
		t.Fatal(err)
	}
	if err := binary(File{b, "/opt/x/b"}, File{a, "/bin/a"}).Write(two); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, one), read(t, two)) {
		t.Error("order and times change the image")
	}
	img, err := tarball.ImageFromPath(one, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := img.ConfigFile()
	if err != nil || cfg.OS != "linux" || cfg.Architecture == "" || cfg.Config.User != "65532" || cfg.Config.Entrypoint[0] != "/bin/a" {
		t.Errorf("configuration is %+v, %v", cfg, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".image-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestAnExtendedImageIsRunAsBeforeAndHasTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, "program a")
	write(t, b, "program b")
	base, path := filepath.Join(dir, "base.tar"), filepath.Join(dir, "more.tar")
	first := Binary{Tag: "example.test/x:1", Config: v1.Config{Entrypoint: []string{"/bin/a"}, User: "65532"}, Files: []File{{a, "/bin/a"}}}
	if err := first.Write(base); err != nil {
		t.Fatal(err)
	}
	if err := (Binary{Tag: "example.test/more:1", From: base, Files: []File{{b, "/opt/b"}}}).Write(path); err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := img.ConfigFile()
	if err != nil || cfg.Config.User != "65532" || cfg.Config.Entrypoint[0] != "/bin/a" || len(cfg.RootFS.DiffIDs) != 2 {
		t.Errorf("configuration is %+v, %v", cfg, err)
	}
	whole := mutate.Extract(img)
	defer whole.Close()
	names := map[string]bool{}
	for r := tar.NewReader(whole); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		names[h.Name] = true
	}
	if !names["bin/a"] || !names["opt/b"] {
		t.Errorf("it has %v", names)
	}
}

func TestAFolderIsAddedWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder := filepath.Join(dir, "npm")
	write(t, filepath.Join(folder, "bin/npm"), "program")
	write(t, filepath.Join(folder, "lib/a.js"), "module")
	if err := os.Symlink("bin/npm", filepath.Join(folder, "start")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "image.tar")
	if err := (Binary{Tag: "example.test/x:1", Files: []File{{folder, "/opt/npm"}}}).Write(path); err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	whole := mutate.Extract(img)
	defer whole.Close()
	var names []string
	for r := tar.NewReader(whole); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		names = append(names, strings.TrimSuffix(h.Name, "/")+h.Linkname)
	}
	slices.Sort(names)
	if want := []string{"opt", "opt/npm", "opt/npm/bin", "opt/npm/bin/npm", "opt/npm/lib", "opt/npm/lib/a.js", "opt/npm/startbin/npm"}; !slices.Equal(names, want) {
		t.Errorf("it has %q, want %q", names, want)
	}
}

func TestATreeKeepsLinksAndModes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "usr/bin/git"), "git")
	if err := os.Link(filepath.Join(dir, "usr/bin/git"), filepath.Join(dir, "usr/bin/git-add")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("usr/bin", filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "tmp"), os.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	got := entries(t, dir)
	if h := got["./usr/bin/git-add"]; h.Typeflag != tar.TypeLink || h.Linkname != "./usr/bin/git" {
		t.Errorf("hard link: %+v", h)
	}
	if h := got["./bin"]; h.Typeflag != tar.TypeSymlink || h.Linkname != "usr/bin" {
		t.Errorf("symbolic link: %+v", h)
	}
	if h := got["./tmp/"]; h.Mode&0o7777 != 0o1777 || !h.ModTime.Equal(Epoch) || h.Uname != "" {
		t.Errorf("tmp: %+v", h)
	}
}

func entries(t *testing.T, dir string) map[string]*tar.Header {
	t.Helper()
	layer, err := treeLayer(filepath.Join(t.TempDir(), "layer.tar"), dir)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	all := map[string]*tar.Header{}
	for r := tar.NewReader(packed); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = h
	}
}

func TestParseFile(t *testing.T) {
	t.Parallel()
	if got, err := ParseFile("bin/x:/opt/x"); err != nil || got != (File{"bin/x", "/opt/x"}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, text := range []string{"", "x", "x:", ":/x", "x:y", "x:/", "x:/a/../b"} {
		if _, err := ParseFile(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestATagIsRequiredToBeWhole(t *testing.T) {
	t.Parallel()
	if err := (Binary{Tag: "no-tag"}).Write(filepath.Join(t.TempDir(), "x.tar")); err == nil {
		t.Error("a name without a tag was accepted")
	}
}
