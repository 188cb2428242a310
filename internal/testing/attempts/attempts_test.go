package attempts

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var world = World{Dir: "/programs/bin", Copyable: "/programs/bin/copyable", Loader: "/lib/loader"}

func TestTheSameBytesMakeTheSameScript(t *testing.T) {
	t.Parallel()
	scripts := map[string]bool{}
	for i, picks := range Picks(1, 500) {
		script := world.Script(picks)
		if script != world.Script(slices.Clone(picks)) || !slices.Equal(picks, Picks(1, 500)[i]) {
			t.Errorf("%q isn't made again", script)
		}
		if len(script) > 4*maxScript || strings.Contains(script, "\x00") {
			t.Errorf("a script of %d bytes: %q", len(script), script)
		}
		scripts[script] = true
	}
	if len(scripts) < 400 {
		t.Errorf("only %d of 500 scripts are different", len(scripts))
	}
	if script := world.Script(nil); strings.TrimSpace(script) == "" {
		t.Error("no bytes make no script")
	}
}

// Each template is understood: what it holds is a part of a script, or a percent sign.
func TestTemplatesAreUnderstood(t *testing.T) {
	t.Parallel()
	for _, template := range slices.Concat(statements, commands, words) {
		for _, part := range regexp.MustCompile(`%.?`).FindAllString(template, -1) {
			if !slices.Contains([]string{"%c", "%q", "%w", "%u", "%p", "%n", "%t", "%l", "%%"}, part) {
				t.Errorf("%q: %q", template, part)
			}
		}
	}
}
