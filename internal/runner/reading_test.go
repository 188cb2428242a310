package runner

import (
	"os"
	"path/filepath"
	"testing"

	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// A directory of programs in PATH that the call can write to, such as that of a virtual environment, hides nothing: what
// lies beside hidden directories is granted when the call starts, and what it makes later would be hidden too.
func TestACallReadsWhatItHasWrittenBesideItsPrograms(t *testing.T) {
	_, work := worlds(t)
	bin := filepath.Join(work, ".venv", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, writePaths := range map[string][]string{"without paths": nil, "with paths": {work}} {
		o := superviseApart(t, supervision{
			Argv: []string{"bash", "-c", "echo made > new && cat new; mkdir -p d && echo deep > d/f && cat d/f; cat /usr/bin/id > id || rm -r new d"},
			Dir:  work, NoNewPrivs: true, Env: []string{"PATH=" + bin + ":" + testPath},
			Rules: &rules.Rules{WritePaths: writePaths, Programs: &rules.Programs{Allowed: []string{"cat", "mkdir", "rm"}, Own: "bash"}},
		}, nobody(t)).Outcome
		if text(o.Stdout) != "made\ndeep\n" || text(o.Stderr) != "cat: /usr/bin/id: Permission denied\n" {
			t.Errorf("%s: %s\nrefused %+v", name, describe(o), o.Refused)
		}
	}
}
