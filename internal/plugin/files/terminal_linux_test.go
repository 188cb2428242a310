package files

import (
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"toolcall.dev/operator/internal/testing/plugintest"
)

// A call may have written anything into a file.
func TestAFileOnATerminalIsVisible(t *testing.T) {
	t.Parallel()
	f := newFileServer(t)
	f.files["hostile"] = "begin\x1b]0;title\x07end"
	tty, display := plugintest.OpenTerminal(t)
	code := plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: tty, ErrOut: tty}).
		Execute([]string{"--kubeconfig", f.kubeconfig, "cp", "-q", "dev:hostile", "-"})
	if shown := display(); code != 0 || !strings.Contains(shown, "begin^[]0;title^Gend") {
		t.Errorf("exit code %d, %q", code, shown)
	}
}
