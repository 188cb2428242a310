package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/full"
)

// The examples of cp, artifacts and attach need the files of a session's pod: they are run here, as their help shows them.
func TestPluginExamplesWithFiles(t *testing.T) {
	full.Only(t, "the plugin's tests run its commands before an API server")
	t.Parallel()
	sp := newSpace(t)
	folder := t.TempDir()
	must(t, os.Mkdir(filepath.Join(folder, "src"), 0o755))
	for _, name := range []string{"data.csv", "src/main.py"} {
		must(t, os.WriteFile(filepath.Join(folder, name), []byte("x\n"), 0o600))
	}
	for _, line := range [][]string{
		{"session", "start", "demo", "-q"},
		{"session", "exec", "demo", "-q", "--shell", `mkdir -p /workspace; echo plot > /workspace/plot.png; echo '{}' > result.json`},
		{"run", "--session", "demo", "--background", "-q", "--name", "interpreter", "--", "python3", "-i"},
	} {
		if got := sp.plugin(t, "", line...); got.code != 0 {
			t.Fatalf("%q: %+v", line, got)
		}
	}
	var plot bytes.Buffer
	must(t, png.Encode(&plot, image.NewGray(image.Rect(0, 0, 30, 20))))
	report := shell(fmt.Sprintf(`echo %s | base64 -d > plot.png; echo '{"a": 1}' > result.json`, base64.StdEncoding.EncodeToString(plot.Bytes())))
	report.Collect = []string{"*.png", "*.json"}
	sp.awaitFinished(t, sp.createNamed(t, "report", report))
	sp.awaitFinished(t, sp.createNamed(t, "server", shell("echo up")))
	must(t, os.Mkdir(filepath.Join(folder, "bin"), 0o755))
	must(t, os.WriteFile(filepath.Join(folder, "bin/xdg-open"), []byte("#!/bin/sh\ncp -- \"$1\" "+folder+"/shown.tmp && mv "+folder+"/shown.tmp "+folder+"/shown\n"), 0o755))
	for _, name := range []string{"cp", "artifacts", "attach"} {
		for _, line := range sp.helpExamples(t, name) {
			out, code := sp.shell(t, folder, line)
			if code != 0 {
				t.Errorf("$ %s\nexits with %d:\n%s", line, code, out)
			}
		}
		if name == "cp" {
			copied := filepath.Join(folder, "plot.png")
			if raw, err := os.ReadFile(copied); err != nil || string(raw) != "plot\n" {
				t.Errorf("plot.png is %q, %v", raw, err)
			}
			must(t, os.Remove(copied)) // artifacts replaces no file
		}
	}
	// The viewer goes on when the plugin has ended.
	var shown []byte
	for end := time.Now().Add(patience); len(shown) == 0 && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		shown, _ = os.ReadFile(filepath.Join(folder, "shown"))
	}
	if picture, err := png.Decode(bytes.NewReader(shown)); err != nil || picture.Bounds() != image.Rect(0, 0, 30, 20) {
		t.Errorf("the viewer got %d bytes: %v", len(shown), err)
	}
}

// createNamed creates a call with a given name.
func (sp *space) createNamed(t *testing.T, name string, spec v1alpha1.ToolCallSpec) *v1alpha1.ToolCall {
	t.Helper()
	call := &v1alpha1.ToolCall{ObjectMeta: objectMeta(sp.namespace, name), Spec: spec}
	must(t, sp.client.Create(t.Context(), call))
	return call
}

// helpExamples are the lines of the examples in a command's help.
func (sp *space) helpExamples(t *testing.T, name string) []string {
	t.Helper()
	_, text, _ := strings.Cut(sp.plugin(t, "", name, "--help").out, "Examples:\n")
	text, _, _ = strings.Cut(text, "\n\nFlags:")
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.Contains(line, "kubectl toolcall "+name) {
			lines = append(lines, line)
		}
	}
	if len(lines) < 2 {
		t.Fatalf("%s has the examples %q", name, text)
	}
	return lines
}

// shell runs a line in a folder, with kubectl in the test's namespace. Two programs of other people are replaced: what they print
// doesn't matter here.
func (sp *space) shell(t *testing.T, folder, line string) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	plugin := sp.pluginCommand(t, ctx)
	functions := "PATH=$PWD/bin:$PATH\nkubectl() { local first=$1; shift; command kubectl \"$first\" -n " + sp.namespace + " \"$@\"; }\njq() { cat; }\npg_dump() { echo dump; }\n"
	command := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", functions+line)
	command.Dir, command.Env = folder, plugin.Env
	raw, err := command.CombinedOutput()
	return string(raw), exitOf(t, err)
}
