package guards

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// markers are programs of the oracle that only record that they ran.
var markers = []string{"id", "sh", "sort", "python3", "sed", "awk", "rm", "touch", "date", "time", "gzip", "ssh", "-", "a=1", "1"}

// shellOracle runs scripts that the guard allows under a real bash, as an unprivileged user, with a PATH in which
// every program that isn't listed is a marker. Names that are no program at all reach a handler that bash
// calls for unknown commands.
type shellOracle struct {
	bash, dir, record string
}

func newShellOracle(t testing.TB, names []string) *shellOracle {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	dir, err := os.MkdirTemp("", "guards-oracle")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o := &shellOracle{bash: bash, dir: dir, record: filepath.Join(dir, "ran")}
	for _, sub := range []string{"bin", "cwd"} {
		must(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	for _, name := range names {
		if program, err := exec.LookPath(name); err == nil {
			must(t, os.Symlink(program, filepath.Join(dir, "bin", name)))
		}
	}
	for _, name := range markers {
		script := "#!" + bash + "\necho \"$0\" >> " + o.record + "\n"
		must(t, os.WriteFile(filepath.Join(dir, "bin", name), []byte(script), 0o755))
	}
	must(t, os.WriteFile(o.record, nil, 0o666))
	for _, path := range []string{dir, filepath.Join(dir, "cwd"), o.record} {
		must(t, os.Chmod(path, 0o777))
	}
	return o
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run returns the names of the unlisted programs that the script ran.
func (o *shellOracle) run(t testing.TB, script string, env []string) string {
	t.Helper()
	must(t, os.WriteFile(o.record, nil, 0o666))
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	const limits = `ulimit -t 2 -f 2048 -v 2000000 -n 64 2>/dev/null; shift; exec "$0" --norc --noprofile -c "$1"`
	cmd := exec.CommandContext(ctx, o.bash, "--norc", "--noprofile", "-c", limits, o.bash, "", script)
	cmd.Dir = filepath.Join(o.dir, "cwd")
	cmd.Env = append([]string{
		"PATH=" + filepath.Join(o.dir, "bin"), "HOME=" + cmd.Dir, "x=a[$(id)]", "y=a[$(id)]", "foo=a[$(id)]", "a=a[$(id)]", "k=a[$(id)]",
		"BASH_FUNC_command_not_found_handle%%=() { echo \"$1\" >> " + o.record + "; return 127; }",
	}, env...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &limitedBuffer{&output}, &limitedBuffer{&output}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: true}
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 200 * time.Millisecond
	_ = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	ran, err := os.ReadFile(o.record)
	must(t, err)
	if text := output.String(); strings.Contains(text, "Permission denied") && strings.Contains(text, o.bash+":") {
		t.Logf("the oracle may be blind: %s", text)
	}
	return strings.TrimSpace(string(ran))
}

// limitedBuffer forgets what is too much.
type limitedBuffer struct{ *bytes.Buffer }

func (b *limitedBuffer) Write(data []byte) (int, error) {
	if b.Len() < 1<<16 {
		b.Buffer.Write(data)
	}
	return len(data), nil
}

// TestTheOracleSeesWhatRuns makes sure that the oracle isn't blind: it must notice refused scripts.
func TestTheOracleSeesWhatRuns(t *testing.T) {
	t.Parallel()
	oracle := newShellOracle(t, usualList)
	for _, script := range []string{
		"id", "echo $(id)", "unlisted-name", "env id", "find . -exec id \\;", "echo $((x))", "[[ $x -eq 1 ]]", "echo `unlisted`", "bash -c id", "!(id)", "echo \"${z:-'$(id)'}\"",
		"BASH_CMDS[ls]=$PWD/../bin/id; ls", "id () { ls; } | cat; id", "echo $((1/0)); id() { ls; }\nid",
	} {
		if oracle.run(t, script, nil) == "" {
			t.Errorf("the oracle did not see %q run anything", script)
		}
	}
}

func TestAllowedScriptsRunNothingUnlisted(t *testing.T) {
	t.Parallel()
	policy := allowlistedPolicy(t, usualList...)
	oracle := newShellOracle(t, usualList)
	for _, script := range append(append([]string{}, allowedScripts...), deniedScripts...) {
		if checkScript(policy, script) != nil {
			continue
		}
		if ran := oracle.run(t, script, nil); ran != "" {
			t.Errorf("allowed, and ran %s: %q", ran, script)
		}
	}
}

// FuzzShell checks that whatever the guard allows runs nothing that isn't listed.
func FuzzShell(f *testing.F) {
	for _, script := range append(append([]string{}, allowedScripts...), deniedScripts...) {
		f.Add(script)
	}
	policy := allowlistedPolicy(f, usualList...)
	oracle := newShellOracle(f, usualList)
	seeding := !isFuzzing()
	f.Fuzz(func(t *testing.T, script string) {
		// The seeds are run for real by TestAllowedScriptsRunNothingUnlisted.
		if len(script) > 4096 || strings.Contains(script, "\x00") || checkScript(policy, script) != nil || seeding {
			return
		}
		if ran := oracle.run(t, script, nil); ran != "" {
			t.Errorf("allowed, and ran %s: %q", ran, script)
		}
	})
}

func isFuzzing() bool {
	for _, arg := range os.Args {
		if strings.HasPrefix(arg, "-test.fuzz=") {
			return true
		}
	}
	return false
}
