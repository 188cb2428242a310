package dispatch_test

import (
	"os"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
)

// The paths that a message resolves are those that calls have made. They have the value where a message is cut, too.
func TestMessagesOfTransfersAreRedacted(t *testing.T) {
	t.Parallel()
	const value = "correct-horse-battery"
	w := newFileWorld(t)
	deep := w.dir + "/" + value + strings.Repeat("/"+strings.Repeat("a", 9)+value, 40)
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"missing": value + "/no", "in": deep} {
		if err := os.Symlink(target, w.dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	known := func(m *wire.Transfer) {
		m.Environment.Known = []envresolve.Known{{Name: "TOKEN", Ref: wire.EnvRefPrefix + "1"}}
	}
	from := func(dir string) func(*wire.Transfer) {
		return func(m *wire.Transfer) { m.Environment.WorkingDir = dir }
	}
	for name, m := range map[string]wire.Transfer{
		"a link to a missing file":     w.transfer(wire.TransferRead, "missing", known),
		"a link to a directory":        w.transfer(wire.TransferRead, "in", known),
		"a file that isn't there":      w.transfer(wire.TransferRead, "in/no", known),
		"a directory to be written":    w.transfer(wire.TransferWrite, "in", known),
		"a directory that isn't there": w.transfer(wire.TransferRead, "x", known, from(w.dir+"/in/no")),
	} {
		_, err := w.session.Transfer(t.Context(), m)
		if err == nil || strings.Contains(err.Error(), "corr") || !strings.Contains(err.Error(), "[redacted: TOKEN]") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.session.Transfer(t.Context(), w.transfer(wire.TransferRead, "in")); err == nil || !strings.Contains(err.Error(), value) {
		t.Errorf("where the policy doesn't redact: %v", err)
	}
}
