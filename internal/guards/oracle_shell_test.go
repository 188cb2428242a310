package guards

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
)

// markers are programs of the oracle that only record that they ran.
var markers = []string{"id", "sh", "sort", "python3", "sed", "awk", "rm", "touch", "date", "time", "gzip", "ssh", "-", "a=1", "1"}

// shellOracle runs scripts that the guard allows under a real bash, as an unprivileged user, with a PATH in which
// every program that isn't listed is a marker. Names that are no program at all reach a handler that bash
// calls for unknown commands.
type shellOracle struct {
	bash, dir string
	record    *os.File // where markers write; only ever touched through this open file
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
	o := &shellOracle{bash: bash, dir: dir}
	o.record, err = os.OpenFile(filepath.Join(dir, "ran"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	must(t, err)
	t.Cleanup(func() { _ = o.record.Close() })
	for _, sub := range []string{"bin", "cwd"} {
		must(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	for _, name := range names {
		if program, err := exec.LookPath(name); err == nil {
			must(t, os.Symlink(program, filepath.Join(dir, "bin", name)))
		}
	}
	for _, name := range markers {
		if !slices.Contains(names, name) {
			createNew(t, filepath.Join(dir, "bin", name), "#!"+bash+"\necho \"$0\" >> "+o.record.Name()+"\n")
		}
	}
	// Scripts may write to the record and to their directory, and not to the directory that holds both.
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chmod(filepath.Join(dir, "cwd"), 0o777))
	must(t, o.record.Chmod(0o666))
	return o
}

// createNew writes a program that must not exist yet. A listed program is a link to the real one here, which
// writing to the link would destroy; so nothing is ever opened that is there already.
func createNew(t testing.TB, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o755)
	must(t, err)
	_, err = file.WriteString(text)
	must(t, err)
	must(t, file.Close())
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
	must(t, o.record.Truncate(0))
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	const limits = `ulimit -t 2 -f 2048 -v 2000000 -n 64 2>/dev/null; shift; exec "$0" --norc --noprofile -c "$1"`
	cmd := exec.CommandContext(ctx, o.bash, "--norc", "--noprofile", "-c", limits, o.bash, "", script)
	cmd.Dir = filepath.Join(o.dir, "cwd")
	cmd.Env = append([]string{
		"PATH=" + filepath.Join(o.dir, "bin"), "HOME=" + cmd.Dir, "x=a[$(id)]", "y=a[$(id)]", "foo=a[$(id)]", "a=a[$(id)]", "k=a[$(id)]",
		"BASH_FUNC_command_not_found_handle%%=() { echo \"$1\" >> " + o.record.Name() + "; return 127; }",
	}, env...)
	output := &limitedBuffer{}
	cmd.Stdout, cmd.Stderr = output, output
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
	ran, err := io.ReadAll(io.NewSectionReader(o.record, 0, 1<<20))
	must(t, err)
	if text := output.kept.String(); strings.Contains(text, "Permission denied") && strings.Contains(text, o.bash+":") {
		t.Logf("the oracle may be blind: %s", text)
	}
	return strings.TrimSpace(string(ran))
}

// limitedBuffer forgets what is too much.
type limitedBuffer struct{ kept bytes.Buffer }

func (b *limitedBuffer) Write(data []byte) (int, error) {
	if b.kept.Len() < 1<<16 {
		b.kept.Write(data)
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
	for _, script := range slices.Concat(allowedScripts, deniedScripts, harmlessAsPrinted) {
		verdict, denial := policy.Judge(Input{Action: &Action{Type: v1alpha1.ActionShell, Command: script}})
		if denial != nil {
			continue
		}
		if ran := oracle.run(t, verdict.Command, nil); ran != "" {
			t.Errorf("allowed, and ran %s: %q", ran, script)
		}
	}
}

// What was judged is what runs: as they are written, these scripts run id.
func TestScriptsRunAsTheyArePrinted(t *testing.T) {
	t.Parallel()
	policy := allowlistedPolicy(t, usualList...)
	oracle := newShellOracle(t, usualList)
	for _, script := range harmlessAsPrinted {
		verdict, denial := policy.Judge(Input{Action: &Action{Type: v1alpha1.ActionShell, Command: script}})
		if denial != nil || verdict.Command == script {
			t.Errorf("%q: %+v, runs %q", script, denial, verdict.Command)
			continue
		}
		if oracle.run(t, script, nil) == "" {
			t.Errorf("%q runs nothing as it is written", script)
		}
		again, denial := policy.Judge(Input{Action: &Action{Type: v1alpha1.ActionShell, Command: verdict.Command}})
		if denial != nil || again.Command != verdict.Command {
			t.Errorf("%q is judged again as %q: %+v", verdict.Command, again.Command, denial)
		}
	}
}

func TestAScriptOfCommentsRunsNothing(t *testing.T) {
	t.Parallel()
	verdict, denial := allowlistedPolicy(t, "ls").Judge(Input{Action: &Action{Type: v1alpha1.ActionShell, Command: "# ls"}})
	if denial != nil || verdict.Command != ":\n" {
		t.Errorf("%q, %+v", verdict.Command, denial)
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
		if len(script) > 4096 || strings.Contains(script, "\x00") || seeding {
			return
		}
		verdict, denial := policy.Judge(Input{Action: &Action{Type: v1alpha1.ActionShell, Command: script}})
		if denial != nil {
			return
		}
		if ran := oracle.run(t, verdict.Command, nil); ran != "" {
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

// fuzzTokens are what scripts of FuzzShellTokens are made of.
var fuzzTokens = []string{
	"id", "ls", "echo", "cat", "find", "env", "xargs", "bash", "-c", "eval", "trap", "exec", "command", "f", "x", "y", "a", "1", "0", "EXIT", "-exec", "{}", "\\;", "+", ".", "-name", "-v",
	" ", " ", " ", " ", " ", " ", "\n", "\n", ";", "; ", "&", "&&", "||", "|", "|&", "(", ")", "((", "))", "$((", "{ ", " }", "; }", "[[ ", " ]]", "[ ", " ]", "$(", "`", "\"", "'", "$'", "$\"", "\\", "\\\n", "#", "!", "! ",
	"$x", "\"$x\"", "${x}", "${x:-", "${x:=", "${x+", "${#x}", "${!x}", "${x@P}", "${x#", "${x/", "${a[", "]}", "}", "a[", "]", "]=", "=", "+=", "x=", "y=5", "x=id", "a=(", "f() { ", "f() ", "function f ", "id() { ls; }", "unset ", "local ", "declare ", "export ", "readonly ", "read ", "printf ", "test ", "set ",
	"if ", "then ", "else ", "fi", "while ", "until ", "do ", "done", "for x in ", "case x in ", "x) ", ";;", "esac", "time ", "coproc ", "select ", "<", ">", ">>", "<<EOF\n", "\nEOF\n", "<<'EOF'\n", "<<<", "<(", ">(", "2>&1", "{x}>", "*", "?", "~", "@(", "!(", "-eq", "-n", "-a", "--", "-i", "-A", "$1", "$@", "$#", ",", "..", "\t", "nounset", "-e",
}

// FuzzShellTokens is FuzzShell over scripts that are put together from tokens: each byte picks one.
func FuzzShellTokens(f *testing.F) {
	for _, seed := range []string{"\x00", "abcdefgh", "\x02\x1b\x30\x00\x31", "\x40\x41\x42\x43\x44\x45\x46\x47"} {
		f.Add([]byte(seed))
	}
	policy := allowlistedPolicy(f, usualList...)
	oracle := newShellOracle(f, usualList)
	f.Fuzz(func(t *testing.T, picks []byte) {
		var script strings.Builder
		for _, pick := range picks[:min(len(picks), 60)] {
			script.WriteString(fuzzTokens[int(pick)%len(fuzzTokens)])
		}
		verdict, denial := policy.Judge(Input{Action: &Action{Type: v1alpha1.ActionShell, Command: script.String()}})
		if denial != nil || strings.TrimSpace(verdict.Command) == "" {
			return
		}
		if ran := oracle.run(t, verdict.Command, nil); ran != "" {
			t.Errorf("allowed, and ran %s: %q", ran, script.String())
		}
	})
}
