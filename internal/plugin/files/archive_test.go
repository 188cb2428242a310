package files

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"toolcall.dev/operator/internal/testing/plugintest"
)

// A directory goes up and comes down with its permission bits.
func TestCpOfADirectory(t *testing.T) {
	t.Parallel()
	f, dir := newFileServer(t), t.TempDir()
	source := filepath.Join(dir, "source")
	write(t, filepath.Join(source, "sub", "run.sh"), "#!/bin/sh\n", 0o755)
	write(t, filepath.Join(source, "empty"), "", 0o600)
	for name, to := range map[string]string{"inside": "sub/run.sh", "outside": "/etc/passwd", "nowhere": "none"} {
		if err := os.Symlink(to, filepath.Join(source, name)); err != nil {
			t.Fatal(err)
		}
	}
	f.cp("", "-r", source, "dev:/w/").Expect(t, 0, `note: left out "nowhere"`, `note: left out "outside"`)
	down := filepath.Join(dir, "down")
	if got := f.cp("", "-r", "dev:/w/source", down); got != (plugintest.Printed{}) {
		t.Fatalf("%+v", got)
	}
	if got := names(t, down); !slices.Equal(got, []string{"empty", "inside", "sub"}) {
		t.Errorf("got %q", got)
	}
	if content(t, filepath.Join(down, "inside")) != "#!/bin/sh\n" {
		t.Error("the link leads elsewhere")
	}
	for name, want := range map[string]os.FileMode{"sub/run.sh": 0o755, "empty": 0o600} {
		if info, err := os.Stat(filepath.Join(down, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	f.cp("", "-r", "dev:/w/source", down).Expect(t, 0)
	if got := names(t, filepath.Join(down, "source")); len(got) != 3 {
		t.Errorf("got %q", got)
	}
	f.cp("", "-r", "dev:/w/source", down).Expect(t, 1, "is there already")
}

// Whatever an archive's entries are, nothing is written outside, and what breaks leaves nothing.
func TestHostileArchives(t *testing.T) {
	t.Parallel()
	whole := archive(t, regular("a"), regular("b"))
	for name, c := range map[string]struct {
		archive []byte
		code    int
		says    string
		// left are the names in the directory.
		left []string
	}{
		"a path that leads out":       {archive(t, regular("../evil")), 1, "leads out of the directory", nil},
		"an absolute path":            {archive(t, regular("/evil")), 1, "leads out of the directory", nil},
		"a way through":               {archive(t, regular("a/../../evil")), 1, "leads out of the directory", nil},
		"a link out":                  {archive(t, link("l", "../evil")), 0, "left out \"l\"", []string{}},
		"an absolute link":            {archive(t, link("l", "/etc")), 0, "left out \"l\"", []string{}},
		"a file through a link":       {archive(t, link("l", ".."), regular("l/evil")), 1, "path escapes", nil},
		"a directory through a link":  {archive(t, link("l", ".."), folder("l/evil")), 1, "path escapes", nil},
		"a directory that is a link":  {archive(t, link("l", ".."), folder("l")), 1, "", nil},
		"a link over a link":          {archive(t, folder("a"), link("a/up", ".."), link("l", "a/up/.."), regular("l/evil")), 1, "path escapes", nil},
		"a link whose text stays in":  {archive(t, folder("p"), folder("p/q"), link("p/q/c", "../.."), link("p/q/l", "c/..")), 0, `left out "p/q/l"`, []string{"p"}},
		"a file twice":                {archive(t, regular("a"), regular("a")), 1, "file exists", nil},
		"a file over a link":          {archive(t, link("a", "../evil"), regular("a")), 1, "", nil},
		"a hard link":                 {archive(t, tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "/etc/passwd"}), 0, `left out "h"`, []string{}},
		"a device":                    {archive(t, tar.Header{Typeflag: tar.TypeChar, Name: "d"}), 0, `left out "d"`, []string{}},
		"a name with control letters": {archive(t, tar.Header{Typeflag: tar.TypeFifo, Name: "p\x1b[0m"}), 0, "left out", []string{}},
		"an archive of nothing":       {archive(t), 0, "", []string{}},
		"no archive":                  {nil, 1, "broke off", nil},
		"something else":              {[]byte(strings.Repeat("<html>", 200)), 1, "read the archive", nil},
		"an archive without its end":  {whole[:len(whole)-1024], 1, "broke off", nil},
		"half a file":                 {archive(t, tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("n", 90)})[:600], 1, "unexpected EOF", nil},
		"half an archive":             {whole[:700], 1, "broke off", nil},
		"bits of another user":        {archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "s", Mode: 0o6755}), 0, "", []string{"s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, dir := newFileServer(t), t.TempDir()
			f.archive = c.archive
			got := f.cp("", "-r", "dev:d", filepath.Join(dir, "in", "..", "down"))
			got.Expect(t, c.code, c.says)
			if strings.Contains(got.Err, "\x1b") {
				t.Errorf("%q", got.Err)
			}
			want := []string{}
			if c.left != nil {
				want = []string{"down"}
				if left := names(t, filepath.Join(dir, "down")); !slices.Equal(left, c.left) && len(left)+len(c.left) > 0 {
					t.Errorf("the directory has %q", left)
				}
				if info, err := os.Stat(filepath.Join(dir, "down", "s")); err == nil && info.Mode() != 0o755 {
					t.Errorf("mode %v", info.Mode())
				}
			}
			if left := names(t, dir); !slices.Equal(left, want) && len(left)+len(want) > 0 {
				t.Errorf("the folder has %q", left)
			}
		})
	}
}

// Standard output that is lost is an error.
func TestCpToAClosedPipe(t *testing.T) {
	t.Parallel()
	f := newFileServer(t)
	f.files["file"] = "x"
	var errs bytes.Buffer
	code := plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: plugintest.BrokenPipe, ErrOut: &errs}).Execute([]string{"--kubeconfig", f.kubeconfig, "cp", "dev:file", "-"})
	if code != 1 || !strings.Contains(errs.String(), "broken pipe") {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
}
