package calls

import (
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"toolcall.dev/operator/internal/testing/plugintest"
)

// With both streams on one terminal, live output needs no order between the streams.
func TestOneTerminalIsOneDestination(t *testing.T) {
	t.Parallel()
	tty, display := plugintest.OpenTerminal(t)
	defer display()
	c := plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: tty, ErrOut: tty})
	if shown := NewDisplay(c, true); !shown.Mixed {
		t.Error("the streams are kept separate")
	}
}
