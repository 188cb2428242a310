package programs

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// waiterVariable makes the test binary wait for the end of its input.
const waiterVariable = "PROGRAMS_TEST_WAITER"

func TestMain(m *testing.M) {
	if os.Getenv(waiterVariable) != "" {
		_, _ = os.Stdout.WriteString("started")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A call can replace a script by the program between the gate's look and the kernel's: what the look said of the path says nothing of the
// program then. Some programs look at the path that they were executed by.
func TestAProgramInThePlaceOfAScriptIsJudgedByItsOwnPath(t *testing.T) {
	root, link := world(t, "bin/other")
	content, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"bin/coreutils": content, "bin/script": []byte("#!" + root + "/bin/ls\n")} {
		if err := os.WriteFile(filepath.Join(root, name), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ls", "rm"} {
		link("bin/"+name, "coreutils")
	}
	sealed(t, root+"/bin")
	allowed := []string{root + "/bin/ls", root + "/bin/script"}
	for name, c := range map[string]struct{ path, ran, rule string }{
		"the program by its name":        {"bin/ls", "bin/ls", ""},
		"the program by another name":    {"bin/rm", "bin/rm", result.RuleName},
		"a script that it interprets":    {"bin/script", "bin/ls", ""},
		"a link to it that a call makes": {"work/tool", "bin/tool", result.RuleName},
	} {
		if err := os.MkdirAll(root+"/work", 0o755); err != nil {
			t.Fatal(err)
		}
		_ = os.Symlink("../bin/coreutils", root+"/work/tool")
		w := NewWatch(resolvedAs(&rules.Programs{Allowed: allowed}, root+"/work", root+"/bin"))
		pid := startWaiter(t, filepath.Join(root, c.path))
		g := NewGate(w, -1, func() {})
		if g.isAsJudged(pid) != (c.rule == "") {
			t.Errorf("%s: it may run is %v", name, c.rule != "")
		}
		var o result.Outcome
		w.Report(&o)
		last := append(append(result.Programs{}, o.Executed...), o.Refused...)
		if p := last[len(last)-1]; p.Path != filepath.Join(root, c.ran) || p.Rule != c.rule {
			t.Errorf("%s: %+v", name, last)
		}
	}
}

// startWaiter starts the test binary at a path, called ls, and returns when it runs.
func startWaiter(t *testing.T, path string) (pid int) {
	t.Helper()
	cmd := exec.Command(path)
	cmd.Args, cmd.Env = []string{"ls"}, []string{waiterVariable + "=1"}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { input.Close(); _ = cmd.Wait() })
	started := make([]byte, len("started"))
	if _, err := io.ReadFull(output, started); err != nil || !bytes.Equal(started, []byte("started")) {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}
