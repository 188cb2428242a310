package runner

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/spec"
	"toolcall.dev/operator/internal/testing/attempts"
)

// attemptsUID is a user of its own: a script's number of processes is bounded for each user.
const attemptsUID = 61234

// attemptsWorld is where scripts run: directories of programs in which everything that isn't listed says that it ran,
// and a supervisor that sees these in the place of the machine's own.
type attemptsWorld struct {
	attempts.World
	Base, Record, Token string
	encoder             *json.Encoder
	decoder             *json.Decoder
}

// Work is the directory that scripts may write to.
func (w *attemptsWorld) work() string { return filepath.Join(w.Base, "work") }

// attempt is a script to run, and what came of it. Held says whether the programs are held to the list.
type attempt struct {
	Script string
	Env    []string
	Held   bool
}

type attemptResult struct {
	Outcome result.Outcome
	// Ran are the lines that programs left that aren't listed.
	Ran []string
}

// helperPrograms are what the listed ones need themselves, by the table in the documentation.
var helperPrograms = []string{"basename", "dirname", "uname", "tr", "gzip"}

const machinePrograms = "/usr/bin"

func newAttemptsWorld(t testing.TB) *attemptsWorld {
	t.Helper()
	ownRules(t)
	needs(t, "gcc", "git", "perl")
	if os.Getuid() != 0 {
		t.Skip("only root can put other directories of programs in the place of the machine's")
	}
	loaders, _ := filepath.Glob("/lib*/ld-linux-*.so.*")
	if len(loaders) == 0 {
		t.Skip("there is no loader of the usual name")
	}
	base := publicDir(t)
	w := &attemptsWorld{
		World: attempts.World{Dir: machinePrograms, Copyable: machinePrograms + "/copyable", Loader: loaders[0]},
		Base:  base, Record: filepath.Join(base, "record", rand.Text()), Token: rand.Text(),
	}
	for dir, mode := range map[string]os.FileMode{"bin": 0o755, "sbin": 0o755, "work": 0o777, "record": 0o711} {
		if err := os.Mkdir(filepath.Join(base, dir), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(base, dir), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Dir(w.Record), filepath.Base(w.Record), "", 0o666)
	w.fill(t)
	w.start(t)
	return w
}

// fill copies the listed programs, and makes everything else a mark.
func (w *attemptsWorld) fill(t testing.TB) {
	t.Helper()
	bin := filepath.Join(w.Base, "bin")
	for _, name := range slices.Concat(attempts.Listed, helperPrograms) {
		real := real(t, name)
		if _, err := os.Stat(filepath.Join(bin, filepath.Base(real))); err != nil {
			content, err := os.ReadFile(real)
			if err != nil {
				t.Fatal(err)
			}
			write(t, bin, filepath.Base(real), string(content), 0o755)
		}
		if name != filepath.Base(real) {
			if err := os.Symlink(filepath.Base(real), filepath.Join(bin, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	copyable := filepath.Join(bin, "copyable")
	if err := (attempts.Mark{Record: w.Record, Token: w.Token, Listed: w.Copyable}).Build(copyable); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(copyable)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(attempts.Names, []string{"editor", "pager", "more", "flock", "zip", "openssl", "wget", "python3", "date", "time"}) {
		write(t, bin, name, string(content), 0o755)
		write(t, filepath.Join(w.Base, "sbin"), name, string(content), 0o755)
	}
	// Neither can it be read by a shell.
	write(t, bin, "script", fmt.Sprintf("#!/bin/bash\necho %s script >> %s\n", w.Token, w.Record), 0o755)
}

// start starts the supervisor. It ends when the test does.
func (w *attemptsWorld) start(t testing.TB) {
	t.Helper()
	arg, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(publicSelf(t), string(arg))
	cmd.Env = []string{helperVariable + "=attempts-world", "GORACE=halt_on_error=1", "PATH=" + testPath}
	cmd.Dir, cmd.Stderr = "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	w.encoder, w.decoder = json.NewEncoder(in), json.NewDecoder(out)
}

// attempt runs a script.
func (w *attemptsWorld) attempt(t testing.TB, a attempt) attemptResult {
	t.Helper()
	var r attemptResult
	if err := w.encoder.Encode(a); err != nil {
		t.Fatal(err)
	}
	if err := w.decoder.Decode(&r); err != nil {
		t.Fatalf("the supervisor is gone: %v\n%q", err, a.Script)
	}
	return r
}

// attemptsWorldHelper puts the directories in their places and gives up being root. The mounts are this process's own.
func attemptsWorldHelper(args []string) {
	var w attemptsWorld
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "the supervisor of attempts:", err)
			os.Exit(1)
		}
	}
	must(json.Unmarshal([]byte(args[0]), &w))
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	done := map[string]bool{}
	for _, dir := range []string{machinePrograms, "/bin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/games", "/usr/local/games"} {
		at, err := filepath.EvalSymlinks(dir)
		if err != nil || done[at] {
			continue
		}
		done[at] = true
		from := "sbin"
		if dir == machinePrograms || dir == "/bin" {
			from = "bin"
		}
		must(unix.Mount(filepath.Join(w.Base, from), at, "", unix.MS_BIND, ""))
	}
	for resource, limit := range map[int]uint64{unix.RLIMIT_NPROC: 400, unix.RLIMIT_CORE: 0} {
		must(unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}))
	}
	must(syscall.Setgroups(nil))
	must(syscall.Setgid(attemptsUID))
	must(syscall.Setuid(attemptsUID))
	// Started again, it is an ordinary process of its user.
	must(syscall.Exec("/proc/self/exe", append([]string{"attempts"}, args...), []string{helperVariable + "=attempts"}))
}

// attemptsHelper runs scripts, one after another.
func attemptsHelper(args []string) {
	var w attemptsWorld
	if err := json.Unmarshal([]byte(args[0]), &w); err != nil {
		os.Exit(1)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		os.Exit(1)
	}
	record, err := os.OpenFile(w.Record, os.O_RDWR, 0)
	if err != nil {
		os.Exit(1)
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var a attempt
		if err := in.Decode(&a); err != nil {
			return
		}
		if err := out.Encode(w.run(a, record)); err != nil {
			return
		}
	}
}

// attemptLimits keep a script from hurting the machine.
const attemptLimits = "ulimit -t 2 -f 4096 -v 1000000\n"

// run runs a script in an empty directory.
func (w *attemptsWorld) run(a attempt, record *os.File) attemptResult {
	dir := filepath.Join(w.work(), "cwd")
	_ = os.RemoveAll(dir)
	_ = os.MkdirAll(dir, 0o755)
	_ = os.WriteFile(filepath.Join(dir, "f"), []byte("x\ny\n"), 0o600)
	_ = record.Truncate(0)
	cmd := Command{
		Argv: []string{"bash", "-c", attemptLimits + a.Script}, Dir: dir, Grace: 10 * time.Millisecond,
		Bounds: spec.Bounds{TimeoutMilliseconds: 1000, MaxBytesPerStream: 16 << 10, Rules: &rules.Rules{Policy: "agents", WritePaths: []string{w.work(), w.Record}}},
		Env:    append([]string{"PATH=" + testPath, "HOME=" + dir, "TERM=dumb"}, a.Env...),
	}
	if a.Held {
		cmd.Rules.Programs = &rules.Programs{Allowed: append([]string{w.Copyable}, attempts.Listed...), Own: "bash"}
	}
	r := attemptResult{Outcome: Run(context.Background(), cmd)}
	content, _ := io.ReadAll(io.NewSectionReader(record, 0, 1<<20))
	for line := range strings.Lines(string(content)) {
		if strings.Contains(line, w.Token) {
			r.Ran = append(r.Ran, strings.TrimSpace(line))
		}
	}
	return r
}
