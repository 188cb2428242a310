package files

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"toolcall.dev/operator/internal/testing/plugintest"
)

// fileServer serves files of a session as the aggregated API does: the API itself needs a pod for that.
type fileServer struct {
	t          *testing.T
	kubeconfig string
	mu         sync.Mutex
	files      map[string]string
	// archive is what a directory is sent as.
	archive []byte
	// maxPart bounds an answer, cut ends each after so many bytes, busy refuses so many requests at first.
	maxPart, cut, busy int
	// changing has a file be another one with each request, lying an answer that isn't the file.
	changing, lying bool
	requests        []string
	// stalls is called in the middle of a file, which then doesn't go on.
	stalls func()
}

func newFileServer(t *testing.T) *fileServer {
	t.Helper()
	f := &fileServer{t: t, files: map[string]string{}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}],
contexts: [{name: c, context: {cluster: c, user: u, namespace: space}}], users: [{name: u, user: {token: t}}]}`, server.URL)
	if err := os.WriteFile(f.kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fileServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name, isArchive := r.URL.Query().Get("path"), r.URL.Query().Get("archive") == "tar"
	f.requests = append(f.requests, r.Method+" "+r.Header.Get("Range"))
	content, isThere := f.files[name]
	defer func() {
		if f.changing {
			f.files[name] += "x"
		}
	}()
	switch {
	case r.URL.Path != "/apis/subresources.toolcall.dev/v1alpha1/namespaces/space/toolsessions/dev/proxy/files":
		http.NotFound(w, r)
	case f.busy > 0:
		f.busy--
		w.Header().Set("Retry-After", "0")
		plugintest.Refuse(w, http.StatusServiceUnavailable, "ServiceUnavailable", "no leader")
	case r.Method == http.MethodPut && isArchive:
		f.archive, _ = io.ReadAll(r.Body)
	case r.Method == http.MethodPut:
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		f.files[name] = string(raw)
		w.Header().Set("ETag", f.tag(string(raw)))
	case isArchive:
		_, _ = w.Write(f.archive)
	case !isThere:
		plugintest.Refuse(w, http.StatusNotFound, "FileNotFound", "there is no file "+name)
	default:
		f.send(w, r, content)
	}
}

func (f *fileServer) tag(content string) string {
	if f.lying {
		content += "!"
	}
	sum := sha256.Sum256([]byte(content))
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func (f *fileServer) send(w http.ResponseWriter, r *http.Request, content string) {
	start, end := 0, len(content)
	span, isPart := strings.CutPrefix(r.Header.Get("Range"), "bytes=")
	if isPart {
		first, last, _ := strings.Cut(span, "-")
		start, _ = strconv.Atoi(first)
		if n, err := strconv.Atoi(last); err == nil {
			end = min(end, n+1)
		}
	}
	switch match := r.Header.Get("If-Match"); {
	case match != "" && match != f.tag(content):
		plugintest.Refuse(w, http.StatusPreconditionFailed, "FileChanged", "the file has another ETag")
		return
	case f.maxPart > 0 && end-start > f.maxPart:
		plugintest.Refuse(w, http.StatusRequestEntityTooLarge, "FileTooLarge", "ask for them in parts")
		return
	}
	w.Header().Set("ETag", f.tag(content))
	w.Header().Set("Content-Length", strconv.Itoa(end-start))
	if isPart {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, end-1, len(content)))
		w.WriteHeader(http.StatusPartialContent)
	}
	if f.cut > 0 && end-start > f.cut {
		_, _ = io.WriteString(w, content[start:start+f.cut])
		_ = http.NewResponseController(w).Flush()
		if f.stalls != nil {
			f.stalls()
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}
	_, _ = io.WriteString(w, content[start:end])
}

func (f *fileServer) cp(stdin string, args ...string) plugintest.Printed {
	f.t.Helper()
	out, errs, code := plugintest.Run(stdin, append([]string{"--kubeconfig", f.kubeconfig, "cp"}, args...)...)
	return plugintest.Printed{Out: out, Err: errs, Code: code}
}

// names are those in a folder.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func content(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestCpOfAFile(t *testing.T) {
	t.Parallel()
	f, dir := newFileServer(t), t.TempDir()
	f.busy = 1
	local := write(t, filepath.Join(dir, "data:1.csv"), "a,b\n", 0o600)
	for _, to := range []string{"dev:/w/data.csv", "dev:/w/"} {
		if got := f.cp("", local, to); got != (plugintest.Printed{}) {
			t.Errorf("%s: %+v", to, got)
		}
	}
	if got := f.cp("piped", "-", "dev:piped"); got != (plugintest.Printed{}) || f.files["piped"] != "piped" {
		t.Errorf("%+v", got)
	}
	if f.files["/w/data.csv"] != "a,b\n" || f.files["/w/data:1.csv"] != "a,b\n" {
		t.Errorf("%q", f.files)
	}
	f.files["empty"] = ""
	down := filepath.Join(dir, "down")
	if got := f.cp("", "dev:/w/data.csv", down); got != (plugintest.Printed{}) || content(t, down) != "a,b\n" {
		t.Errorf("%+v", got)
	}
	executable := write(t, filepath.Join(dir, "run.sh"), "old", 0o750)
	if got := f.cp("", "dev:/w/data.csv", executable); got != (plugintest.Printed{}) || content(t, executable) != "a,b\n" {
		t.Errorf("%+v", got)
	}
	if info, err := os.Stat(executable); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("run.sh", link); err != nil {
		t.Fatal(err)
	}
	if got := f.cp("", "dev:piped", link); got != (plugintest.Printed{}) || content(t, executable) != "piped" {
		t.Errorf("%+v", got)
	}
	if got := f.cp("", "dev:empty", dir); got != (plugintest.Printed{}) || content(t, filepath.Join(dir, "empty")) != "" {
		t.Errorf("%+v", got)
	}
	if got := f.cp("", "dev:piped", "-"); got != (plugintest.Printed{Out: "piped"}) {
		t.Errorf("%+v", got)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"data:1.csv", "down", "empty", "link", "run.sh"}) {
		t.Errorf("the folder has %q", got)
	}
}

// Answers that break off are gone on with, and a policy that bounds an answer is obeyed.
func TestCpInParts(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(f *fileServer){
		"broken":            func(f *fileServer) { f.cut = 40_000 },
		"bounded":           func(f *fileServer) { f.maxPart = 70_000 },
		"broken in a bound": func(f *fileServer) { f.cut, f.maxPart = 50_000, 300_000 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, want := newFileServer(t), strings.Repeat("0123456789\n", 20_000)
			change(f)
			f.files["big"] = want
			down := filepath.Join(t.TempDir(), "big")
			if got := f.cp("", "dev:big", down); got != (plugintest.Printed{}) || content(t, down) != want {
				t.Errorf("%+v after %d requests", got, len(f.requests))
			}
			if len(f.requests) < 4 {
				t.Errorf("requests %q", f.requests)
			}
		})
	}
}

// What fails leaves what was there, and nothing else.
func TestCpThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(f *fileServer)
		from   string
		says   string
	}{
		"a file that isn't there": {func(*fileServer) {}, "dev:none", "there is no file none"},
		"a file that changes":     {func(f *fileServer) { f.changing, f.cut = true, 3 }, "dev:file", "changed while it was read"},
		"another content":         {func(f *fileServer) { f.lying = true }, "dev:file", "don't have the hash"},
		"a bound that is too low": {func(f *fileServer) { f.maxPart = 4 }, "dev:file", "ask for them in parts"},
		"no such session":         {func(*fileServer) {}, "other:file", "copy other:file to"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, dir := newFileServer(t), t.TempDir()
			f.files["file"] = "0123456789"
			c.change(f)
			old := write(t, filepath.Join(dir, "old"), "old", 0o600)
			f.cp("", c.from, old).Expect(t, 1, c.says)
			if got := names(t, dir); !slices.Equal(got, []string{"old"}) || content(t, old) != "old" {
				t.Errorf("the folder has %q", got)
			}
		})
	}
	f, dir := newFileServer(t), t.TempDir()
	f.lying = true
	f.cp("", write(t, filepath.Join(dir, "up"), "up", 0o600), "dev:up").Expect(t, 1, "don't have the hash")
}

// The user stops it in the middle. What came is gone, and nobody else could read it meanwhile.
func TestCpThatIsInterruptedLeavesNothing(t *testing.T) {
	f, dir := newFileServer(t), t.TempDir()
	f.files["file"], f.cut = "0123456789", 4
	old := write(t, filepath.Join(dir, "old"), "old", 0o600)
	f.stalls = func() {
		for deadline := time.Now().Add(time.Minute); len(names(t, dir)) < 2 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		for _, name := range names(t, dir) {
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s has the mode %v, %v", name, info.Mode(), err)
			}
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
	f.cp("", "dev:file", old).Expect(t, 1, "")
	if got := names(t, dir); !slices.Equal(got, []string{"old"}) || content(t, old) != "old" {
		t.Errorf("the folder has %q", got)
	}
}

func TestArgumentsOfCp(t *testing.T) {
	t.Parallel()
	f, dir := newFileServer(t), t.TempDir()
	file := write(t, filepath.Join(dir, "file"), "x", 0o600)
	f.files["file"] = "x"
	for line, want := range map[string]string{
		"":                               "specify what to copy and where to",
		"a":                              "specify what to copy and where to",
		"a b c":                          "specify what to copy and where to",
		"a b":                            "neither a nor b is in a session",
		"./dev:a b":                      "neither ./dev:a nor b is in a session",
		"dev:a other:b":                  "both in sessions",
		"dev: b":                         "the path after the colon is empty",
		"- dev:d/":                       "standard input has no name",
		"-r - dev:d":                     "-r copies directories",
		"DIR dev:d":                      "is a directory: to copy it, use -r",
		"-r FILE dev:d":                  "isn't a directory: leave out -r",
		"-r dev:d FILE":                  "is a file: name a directory",
		"DIR/none dev:d":                 "no such file or directory",
		"dev:file /dev/null":             "isn't a regular file: use \"-\"",
		"dev:d/.. DIR":                   "doesn't end in a name",
		"dev:file " + dir + "/none/file": "no such file or directory",
	} {
		line = strings.NewReplacer("DIR", dir, "FILE", file).Replace(line)
		f.cp("", strings.Fields(line)...).Expect(t, 1, want)
	}
	if len(f.requests) > 0 {
		t.Errorf("requests %q", f.requests)
	}
}

// archive makes a tar archive of entries.
func archive(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var raw bytes.Buffer
	w := tar.NewWriter(&raw)
	for _, e := range entries {
		text := ""
		if e.Typeflag == tar.TypeReg {
			text = "content of " + e.Name
			e.Size = int64(len(text))
		}
		if err := w.WriteHeader(&e); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return raw.Bytes()
}

func regular(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o640}
}

func link(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}
}

func folder(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o500}
}
