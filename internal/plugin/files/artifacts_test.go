package files

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"toolcall.dev/operator/internal/testing/plugintest"
)

// artifactServer serves a call with artifacts as the API server and the aggregated API do.
type artifactServer struct {
	files   map[string]string
	types   map[string]string
	lying   bool
	message string
}

func (s *artifactServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/apis/toolcall.dev/v1alpha1/namespaces/space/toolcalls/c":
		var all []map[string]any
		for path, content := range s.files {
			sum := sha256.Sum256([]byte(content))
			all = append(all, map[string]any{"path": path, "bytes": len(content), "sha256": hex.EncodeToString(sum[:]), "mediaType": s.types[path], "state": "Complete"})
		}
		slices.SortFunc(all, func(a, b map[string]any) int { return strings.Compare(a["path"].(string), b["path"].(string)) })
		raw, _ := json.Marshal(map[string]any{
			"apiVersion": "toolcall.dev/v1alpha1", "kind": "ToolCall", "metadata": map[string]any{"namespace": "space", "name": "c", "uid": "u"},
			"status": map[string]any{"phase": "Succeeded", "artifacts": all, "artifactsMessage": s.message},
		})
		_, _ = w.Write(raw)
	case "/apis/subresources.toolcall.dev/v1alpha1/namespaces/space/toolcalls/c/log":
		content, ok := s.files[r.URL.Query().Get("artifact")]
		offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		if !ok || r.URL.Query().Get("uid") != "u" || r.URL.Query().Has("stream") {
			plugintest.Refuse(w, http.StatusBadRequest, "BadRequest", "no")
			return
		}
		if s.lying {
			content = strings.Repeat("?", len(content))
		}
		for name, value := range map[string]string{"Uid": "u", "Offset": strconv.Itoa(offset), "Bytes": strconv.Itoa(len(content)), "Complete": "true"} {
			w.Header().Set("Toolcall-"+name, value)
		}
		_, _ = io.WriteString(w, content[offset:])
	default:
		plugintest.Refuse(w, http.StatusNotFound, "NotFound", "not found")
	}
}

const pixel = "\x89PNG\r\n\x1a\n\x00\xff"

func newArtifactServer(t *testing.T) (server *artifactServer, kubeconfig string) {
	t.Helper()
	server = &artifactServer{
		files: map[string]string{
			"out/plot.png": pixel, "result.json": "{}\n", "empty.txt": "", "page.png": "<html>", "page.html": "<html>", ".bashrc": "x", "..": "x", "e\x1b[0m": "x",
		},
		types: map[string]string{"out/plot.png": "image/png", "result.json": "application/json", "page.png": "text/html; charset=utf-8", "page.html": "image/png"},
	}
	here := httptest.NewServer(server)
	t.Cleanup(here.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}],
contexts: [{name: c, context: {cluster: c, namespace: space}}]}`, here.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return server, kubeconfig
}

func TestArtifactsAreListed(t *testing.T) {
	t.Parallel()
	server, kubeconfig := newArtifactServer(t)
	server.message = "3 files were left out"
	out, errs, code := plugintest.Run("", "--kubeconfig", kubeconfig, "artifacts", "c")
	if code != 0 || errs != "note: 3 files were left out\n" {
		t.Errorf("exit code %d, %q", code, errs)
	}
	for _, want := range []string{"PATH", "BYTES", "TYPE", "STATE", "out/plot.png", "image/png", "10", "Complete", "e^[[0m"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	server.files, server.message = nil, ""
	if out, errs, code = plugintest.Run("", "--kubeconfig", kubeconfig, "artifacts", "c"); code != 0 || out != "" || errs != "call c has no artifacts: it kept no files\n" {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	if got := plugintest.Completions(t, kubeconfig, "space", "artifacts", "c", "o"); got != "" {
		t.Errorf("completes to %q", got)
	}
	server, kubeconfig = newArtifactServer(t)
	if got := plugintest.Completions(t, kubeconfig, "space", "artifacts", "c", "o"); got != "out/plot.png" {
		t.Errorf("completes to %q", got)
	}
	_ = server
}

// A plot that a call made is a PNG that a person opens with one command.
func TestAnArtifactIsWrittenAndOpened(t *testing.T) {
	// The working directory is the process's.
	server, kubeconfig := newArtifactServer(t)
	dir := t.TempDir()
	t.Chdir(dir)
	var opened []string
	get := func(args ...string) plugintest.Printed {
		var out, errs strings.Builder
		c := plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errs})
		*c.Flags.KubeConfig = kubeconfig
		cluster, err := c.Connect()
		if err != nil {
			t.Fatal(err)
		}
		o := &artifactsOptions{view: func(file string) error { opened = append(opened, file); return nil }}
		for i := 1; i < len(args); i++ {
			switch args[i] {
			case "--open":
				o.open = true
			default:
				o.output = args[i]
			}
		}
		if err := o.run(t.Context(), cluster, []string{"c", args[0]}); err != nil {
			return plugintest.Printed{Out: out.String(), Err: err.Error(), Code: 1}
		}
		return plugintest.Printed{Out: out.String(), Err: errs.String()}
	}
	if got := get("out/plot.png", "--open"); got != (plugintest.Printed{Out: "plot.png\n"}) || content(t, "plot.png") != pixel || !slices.Equal(opened, []string{"plot.png"}) {
		t.Errorf("%+v, opened %q", got, opened)
	}
	if got := get("result.json", "-"); got != (plugintest.Printed{Out: "{}\n"}) {
		t.Errorf("%+v", got)
	}
	if got := get("result.json", "plot.png"); got.Code != 0 || content(t, "plot.png") != "{}\n" {
		t.Errorf("%+v", got)
	}
	if got := get("empty.txt"); got != (plugintest.Printed{Out: "empty.txt\n"}) || content(t, "empty.txt") != "" {
		t.Errorf("%+v", got)
	}
	for path, want := range map[string]string{
		"result.json/..": "has no artifact", "empty.txt": "is there already", ".bashrc": "is no name for a file here", "..": "is no name for a file here",
	} {
		if got := get(path); got.Code != 1 || !strings.Contains(got.Err, want) {
			t.Errorf("%s: %+v", path, got)
		}
	}
	for _, path := range []string{"page.png", "page.html", "empty.txt"} {
		if got := get(path, "--open"); got.Code != 1 || !strings.Contains(got.Err, "--open doesn't open") {
			t.Errorf("%s: %+v", path, got)
		}
	}
	// Nor is anything replaced, or hidden, in a folder that the user names.
	if err := os.Mkdir("folder", 0o700); err != nil {
		t.Fatal(err)
	}
	if got := get("out/plot.png", "folder"); got != (plugintest.Printed{Out: "folder/plot.png\n"}) || content(t, "folder/plot.png") != pixel {
		t.Errorf("%+v", got)
	}
	for path, want := range map[string]string{"out/plot.png": "folder/plot.png is there already", ".bashrc": "is no name for a file here", "..": "is no name for a file here"} {
		if got := get(path, "folder/"); got.Code != 1 || !strings.Contains(got.Err, want) {
			t.Errorf("%s in a folder: %+v", path, got)
		}
	}
	// The name that the viewer sees counts too.
	for _, name := range []string{"shown", "shown.html", "shown.desktop"} {
		if got := get("result.json", name, "--open"); got.Code != 1 || !strings.Contains(got.Err, "--open doesn't open "+name) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := get("result.json", "shown.json", "--open"); got != (plugintest.Printed{Out: "shown.json\n"}) || len(opened) != 2 {
		t.Errorf("%+v, opened %q", got, opened)
	}
	server.lying = true
	if got := get("result.json", "lie"); got.Code != 1 || !strings.Contains(got.Err, "don't have the hash") {
		t.Errorf("%+v", got)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"empty.txt", "folder", "plot.png", "shown.json"}) || len(opened) != 2 {
		t.Errorf("the folder has %q, opened %q", got, opened)
	}
}

func TestArgumentsOfArtifacts(t *testing.T) {
	t.Parallel()
	_, kubeconfig := newArtifactServer(t)
	for line, want := range map[string]string{
		"":                          "specify the name of one call",
		"c a b":                     "specify the name of one call",
		"c result.json --output=":   "-o: give a name",
		"c --open":                  "-o and --open are for one artifact",
		"c -o file":                 "-o and --open are for one artifact",
		"c result.json --open -o -": "--open needs a file",
		"none":                      "call none: ",
	} {
		out, errs, code := plugintest.Run("", append([]string{"--kubeconfig", kubeconfig, "artifacts"}, strings.Fields(line)...)...)
		plugintest.Printed{Out: out, Err: errs, Code: code}.Expect(t, 1, want)
	}
}
