package shim

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/proc"
	"toolcall.dev/operator/internal/spec"
)

// scenarioVariable makes the test binary carry out a scenario as the first process of a container.
const scenarioVariable = "SHIM_TEST_SCENARIO"

func TestMain(m *testing.M) {
	if name := os.Getenv(scenarioVariable); name != "" {
		scenarios[name]()
		// Without what the race detector and the coverage do and say at an ordinary exit.
		syscall.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("toolcall.dev/operator/internal/runner/sandbox/kernel.worker.serve"))
}

const testPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func bash(script string) runner.Command {
	return runner.Command{
		Argv: []string{"bash", "-c", script}, Env: []string{"PATH=" + testPath}, Dir: "/",
		Grace: 10 * time.Second, Bounds: spec.Bounds{TimeoutMilliseconds: 60_000, MaxBytesPerStream: 64 << 10},
	}
}

// bench is a pool of a test's own.
type bench struct {
	*Pool
	t   testing.TB
	dir string
	// survivors counts commands of which something could not be ended.
	survivors int
}

func newBench(t testing.TB, commands int) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir()}
	b.Pool = NewPool(commands, func() { b.survivors++ })
	t.Cleanup(func() {
		b.Close()
		checkNothingLeft(t)
	})
	return b
}

// checkNothingLeft looks for children of the test process.
func checkNothingLeft(t testing.TB) {
	t.Helper()
	for _, pid := range proc.Children(proc.Threads()...) {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		t.Errorf("process %d is left: %s", pid, strings.ReplaceAll(string(cmdline), "\x00", " "))
	}
}

// run runs a command and checks what must hold for every outcome.
func (b *bench) run(ctx context.Context, cmd runner.Command) result.Outcome {
	b.t.Helper()
	o := b.Run(ctx, cmd)
	if err := o.Validate(); err != nil {
		b.t.Errorf("invalid outcome: %v", err)
	}
	return o
}

// start runs a command in the background.
func (b *bench) start(ctx context.Context, cmd runner.Command) <-chan result.Outcome {
	ended := make(chan result.Outcome, 1)
	go func() { ended <- b.run(ctx, cmd) }()
	return ended
}

// fifo is a path through which a script says a line.
func (b *bench) fifo(name string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// read waits for what a script says.
func (b *bench) read(fifo string) string {
	b.t.Helper()
	said, err := os.ReadFile(fifo)
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.TrimSpace(string(said))
}

// pids are the process IDs in what a script said.
func (b *bench) pids(said string) []int {
	b.t.Helper()
	var pids []int
	for field := range strings.FieldsSeq(said) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			b.t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

func isThere(pid int) bool {
	_, ok := proc.Read(pid)
	return ok
}

// daemons starts processes that leave the command's session, group and variables, and are orphans. The script says their
// process IDs to a path.
func daemons(fifo string) string {
	return `{ setsid env -i bash -c 'echo $$; exec sleep 600 >/dev/null' &
setsid bash -c '(trap "" TERM; echo $BASHPID; exec >/dev/null; while :; do sleep 600; done) & exit' & } >` + fifo + `
`
}

// chain starts a process that starts the next one and ends, for ever.
const chain = `bash -c 'f() { (f &); }; f' 2>/dev/null &
`

// chains starts chains of processes, each of which starts the next one and a child that ends at once, and ends.
func (b *bench) chains() string {
	b.t.Helper()
	needs(b.t, "gcc")
	program := filepath.Join(b.dir, "chain")
	if out, err := exec.Command("gcc", "-w", "-o", program, "../testdata/chain.c").CombinedOutput(); err != nil {
		b.t.Fatalf("compile: %v: %s", err, out)
	}
	return program + " </dev/null\n"
}

func reason(o result.Outcome) string { return fmt.Sprintf("%s (%s)", o.Reason, o.Message) }

func text(s result.Stream) string {
	out, _ := s.Text(1 << 20)
	return out
}

func needs(t testing.TB, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s isn't installed", name)
		}
	}
}

// apart carries out a scenario in a process of its own and returns what it said.
func apart(t *testing.T, scenario string, prefix ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "shim-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	binary, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	self := filepath.Join(dir, "self")
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(self, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	argv := append(prefix, self, dir)
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = []string{scenarioVariable + "=" + scenario, "PATH=" + testPath, "SECRET=swordfish"}
	cmd.Dir, cmd.WaitDelay = "/", time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, stderr.Bytes())
	}
	return string(out)
}
