package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"toolcall.dev/operator/internal/plugin/terminal"
)

// What the filter holds back appears at the end of the command, before its error.
func TestHeldBackOutputComesBeforeTheError(t *testing.T) {
	t.Parallel()
	var screen bytes.Buffer
	c := New(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &screen, ErrOut: &screen}, func(*CLI) []*cobra.Command { return nil })
	filter := terminal.NewWriter(&screen)
	c.Out, c.filters = filter, []*terminal.Writer{filter}
	if _, err := filter.Write([]byte("half a character \xe2\x82")); err != nil {
		t.Fatal(err)
	}
	if code := c.Execute([]string{"--none"}); code != 1 || !strings.HasPrefix(screen.String(), "half a character <E2><82>error: unknown flag") {
		t.Errorf("exit code %d, %q", code, screen.String())
	}
}
