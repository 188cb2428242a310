package subresources_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// archiveOf makes an archive; the content of each entry is its name.
func archiveOf(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var raw bytes.Buffer
	w := tar.NewWriter(&raw)
	for _, h := range entries {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		h.Mode = 0o755
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, h.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return raw.Bytes()
}

func regular(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }

func link(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
}

func (p *pod) putArchive(path string, raw []byte) *http.Response {
	p.t.Helper()
	return p.send(p.owner, http.MethodPut, p.fileURL(path, "&archive=tar"), bytes.NewReader(raw))
}

func TestADirectoryGoesUpAndDown(t *testing.T) {
	p := newPod(t)
	raw := archiveOf(t, tar.Header{Typeflag: tar.TypeDir, Name: "./"}, regular("./a"), tar.Header{Typeflag: tar.TypeDir, Name: "empty/"},
		regular("sub/deep/"+strings.Repeat("n", 200)), link("sub/link", "../a"))
	// What follows an archive's end is padding.
	if r := p.putArchive("to/dir", append(raw, make([]byte, 300<<10)...)); r.StatusCode != http.StatusOK {
		t.Fatalf("%d: %s", r.StatusCode, body(t, r))
	}
	if p.onDisk("to/dir/a") != "./a" || p.onDisk("to/dir/sub/link") != "./a" {
		t.Error("the files are others")
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	for name, content := range map[string][]byte{"large": large, "secret.key": []byte("key")} {
		if err := os.WriteFile(p.dir+"/to/dir/"+name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := p.send(p.owner, http.MethodGet, p.fileURL("to/dir", "&archive=tar"), nil)
	got, archive := map[string]string{}, tar.NewReader(r.Body)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = fmt.Sprintf("%c %s %s", h.Typeflag, h.Linkname, sum(content))
	}
	want := map[string]string{
		"a": "0  " + sum([]byte("./a")), "empty/": "5  " + sum(nil), "sub/": "5  " + sum(nil), "sub/deep/": "5  " + sum(nil), "sub/link": "2 ../a " + sum(nil),
		"sub/deep/" + strings.Repeat("n", 200): "0  " + sum([]byte("sub/deep/"+strings.Repeat("n", 200))), "large": "0  " + sum(large),
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for query, code := range map[string]int{"to/dir/a": http.StatusConflict, "none": http.StatusNotFound, "/etc": http.StatusForbidden} {
		if r := p.send(p.owner, http.MethodGet, p.fileURL(query, "&archive=tar"), nil); r.StatusCode != code {
			t.Errorf("%s: %d, want %d", query, r.StatusCode, code)
		}
	}
	if r := p.send(p.owner, http.MethodGet, p.fileURL("to/dir", "&archive=zip"), nil); r.StatusCode != http.StatusBadRequest {
		t.Errorf("zip: %d", r.StatusCode)
	}
}

func TestHostileArchives(t *testing.T) {
	p := newPod(t)
	outside := t.TempDir()
	if err := os.Symlink(outside, p.dir+"/before"); err != nil {
		t.Fatal(err)
	}
	whole := archiveOf(t, regular("a"), regular("b"))
	for name, tc := range map[string]struct {
		raw  []byte
		code int
	}{
		"an absolute name":            {archiveOf(t, regular("/tmp/x")), http.StatusForbidden},
		"a name that leads out":       {archiveOf(t, regular("../x")), http.StatusForbidden},
		"one that does so later":      {archiveOf(t, regular("a/../../x")), http.StatusForbidden},
		"through a link of before":    {archiveOf(t, regular("before/x")), http.StatusForbidden},
		"a link that leads out":       {archiveOf(t, link("l", "../x")), http.StatusForbidden},
		"one that is absolute":        {archiveOf(t, link("l", outside)), http.StatusForbidden},
		"one over a link":             {archiveOf(t, link("sub/l", "../../x")), http.StatusForbidden},
		"a hard link":                 {archiveOf(t, tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "/etc/passwd"}), http.StatusForbidden},
		"a device":                    {archiveOf(t, tar.Header{Typeflag: tar.TypeChar, Name: "d"}), http.StatusForbidden},
		"a FIFO":                      {archiveOf(t, tar.Header{Typeflag: tar.TypeFifo, Name: "f"}), http.StatusForbidden},
		"what is denied":              {archiveOf(t, regular("sub/x.key")), http.StatusForbidden},
		"nothing":                     {nil, http.StatusBadRequest},
		"no archive":                  {bytes.Repeat([]byte("x"), 10_000), http.StatusBadRequest},
		"one that breaks off":         {whole[:len(whole)-1024-512-300], http.StatusBadRequest},
		"a file where a link is":      {archiveOf(t, regular("x"), link("x", "y")), http.StatusConflict},
		"a directory where a file is": {archiveOf(t, regular("y"), regular("y/z")), http.StatusConflict},
	} {
		if r := p.putArchive(".", tc.raw); r.StatusCode != tc.code {
			t.Errorf("%s: %d, want %d: %s", name, r.StatusCode, tc.code, body(t, r))
		}
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) != 0 {
		t.Errorf("outside has %v, %v", list, err)
	}
	for _, name := range []string{"l", "h", "d", "f", "b"} {
		if _, err := os.Lstat(p.dir + "/" + name); err == nil && name != "b" {
			t.Errorf("%s was made", name)
		}
	}
	if strings.Contains(p.names(), ".toolcall-") {
		t.Errorf("left are %s", p.names())
	}
}
