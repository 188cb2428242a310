package shim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/proc"
)

// scenarios are carried out by processes of their own, which say on their output what came of it.
var scenarios = map[string]func(){
	"container": containerScenario,
	"memory":    memoryScenario,
}

func scenarioPool(commands int) *Pool {
	if err := runner.Harden(); err != nil {
		panic(err)
	}
	return NewPool(commands, func() {})
}

// containerScenario is a session in a container: this is its first process, and no more than that.
func containerScenario() {
	p := scenarioPool(2)
	ctx, stop := context.WithCancel(context.Background())
	ready := filepath.Join(os.Args[1], "ready")
	var other sync.WaitGroup
	other.Go(func() {
		o := p.Run(ctx, bash(`setsid sleep 601 & echo up >`+ready+`; exec sleep 602`))
		fmt.Println("other:", o.Reason)
	})
	for {
		if _, err := os.Stat(ready); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for _, end := range []string{"exit 0", "kill -9 $PPID; sleep 603", "tr '\\0' '\\n' </proc/$PPID/environ; tr '\\0' '\\n' </proc/1/environ; kill -9 1"} {
		o := p.Run(context.Background(), bash(`setsid env -i sleep 604 & setsid bash -c 'sleep 605 & sleep 606 &' ; `+end))
		fmt.Println("command:", o.Reason, strings.TrimSpace(text(o.Stdout)))
		fmt.Println("there:", sleeping())
	}
	stop()
	other.Wait()
	p.Close()
	fmt.Println("left:", len(proc.All())-1)
}

// sleeping are the sleeps that are there.
func sleeping() []string {
	var found []string
	for _, n := range []string{"601", "602", "603", "604", "605", "606"} {
		for pid := range proc.All() {
			if cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); string(cmdline) == "sleep\x00"+n+"\x00" {
				found = append(found, n)
			}
		}
	}
	return found
}

func TestASessionAsTheFirstProcessOfAContainer(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a PID namespace")
	}
	needs(t, "unshare", "setpriv", "setsid")
	got := apart(t, "container", "unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "setpriv",
		"--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--no-new-privs")
	want := `command: Completed
there: [601 602]
command: Signaled
there: [601 602]
command: Completed
there: [601 602]
other: CancelRequested
left: 0
`
	// The first process can't be killed, and neither it nor the shim can be looked into.
	if got = strings.Replace(got, "command: Completed \n", "command: Completed\n", -1); strings.ReplaceAll(got, " \n", "\n") != want {
		t.Errorf("got\n%s", got)
	}
}

// memoryScenario is a session in a container with little memory.
func memoryScenario() {
	p := scenarioPool(2)
	defer p.Close()
	ctx, stop := context.WithCancel(context.Background())
	var other sync.WaitGroup
	other.Go(func() {
		o := p.Run(ctx, bash(`exec python3 -c 'import time; b = b"x" * (8 << 20); time.sleep(600)'`))
		fmt.Println("other:", o.Reason)
	})
	for range 2 {
		o := p.Run(ctx, bash(`python3 -c 'import time
def number(name): return int(open("`+ownMemoryGroup()+`/memory." + name).read())
b = []
while True: # it stops just above what ends it: the kernel is never first, however late the runner looks
    if number("usage_in_bytes") < 0.98 * number("limit_in_bytes"): b.append(b"x" * (1 << 20))
    else: time.sleep(0.01)'; echo "survived $?"`))
		fmt.Println("large:", o.Reason, o.Signal, o.Message == outOfMemory.Message, o.OOMKilled)
	}
	o := p.Run(ctx, bash("echo fine"))
	fmt.Println("next:", o.Reason)
	stop()
	other.Wait()
}

var memoryGroup = regexp.MustCompile(`(?m)^\d+:(?:[^:\n]*,)?memory(?:,[^:\n]*)?:(.*)$`)

// ownMemoryGroup is the directory of this process's control group; empty where version 1 doesn't limit memory.
func ownMemoryGroup() string {
	groups, _ := os.ReadFile("/proc/self/cgroup")
	own := memoryGroup.FindSubmatch(groups)
	if own == nil {
		return ""
	}
	return filepath.Join("/sys/fs/cgroup/memory", string(own[1]))
}

func TestTheLargestCommandIsEndedBeforeTheKernelEndsAny(t *testing.T) {
	needs(t, "python3")
	own := ownMemoryGroup()
	if own == "" {
		t.Skip("memory isn't limited by control groups of version 1 here")
	}
	dir := filepath.Join(own, fmt.Sprintf("shim-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("can't make a control group: ", err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte("402653184"), 0); err != nil {
		t.Skip("can't limit memory: ", err)
	}
	// Swap, where it is counted, would put the end off.
	_ = os.WriteFile(filepath.Join(dir, "memory.memsw.limit_in_bytes"), []byte("402653184"), 0)
	got := apart(t, "memory", "sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, dir)
	want := strings.Repeat("large: OOMKilled SIGKILL true false\n", 2) + "next: Completed\nother: CancelRequested\n"
	if got != want {
		t.Errorf("got\n%s", got)
	}
}

// container says how much memory is in use.
type container struct{ limit, used, needed int64 }

func (c *container) Limit() (int64, bool) { return c.limit, c.limit > 0 }

func (c *container) Used() int64 { return c.used }

func (c *container) Needed() int64 { return c.needed }

func TestOnlyOneCommandIsEndedAtATimeForMemory(t *testing.T) {
	b := newBench(t, 2)
	m := &container{needed: 94}
	b.memory = m
	ready := b.fifo("ready")
	eat := func(mib int) runner.Command {
		return bash(fmt.Sprintf(`exec python3 -c 'import time; b = b"x" * (%d << 20); open("%s", "w").write("up"); time.sleep(600)'`, mib, ready))
	}
	needs(t, "python3")
	small := b.start(t.Context(), eat(1))
	b.read(ready)
	large := b.start(t.Context(), eat(64))
	b.read(ready)
	b.endLargest(95)
	m.needed = 95
	b.endLargest(95)
	b.endLargest(95)
	if o := <-large; o.Reason != result.OOMKilled || o.Signal != "SIGKILL" {
		t.Errorf("the large one: %s", reason(o))
	}
	select {
	case o := <-small:
		t.Errorf("the small one: %s", reason(o))
	default:
	}
	b.endLargest(95)
	if o := <-small; o.Reason != result.OOMKilled {
		t.Errorf("the small one: %s", reason(o))
	}
	b.endLargest(95)
}

func TestACommandThatIsBeingStoppedCanBeEndedForMemory(t *testing.T) {
	b := newBench(t, 1)
	b.memory = &container{needed: 95}
	ready := b.fifo("ready")
	ctx, cancel := context.WithCancel(t.Context())
	cmd := bash(`trap 'echo stopping >` + ready + `' TERM; echo up >` + ready + `; while :; do sleep 600 & wait; done`)
	cmd.Grace = time.Hour
	ended := b.start(ctx, cmd)
	b.read(ready)
	cancel()
	b.read(ready)
	b.endLargest(95)
	if o := <-ended; o.Reason != result.CancelRequested || !o.Started {
		t.Errorf("got %s", reason(o))
	}
}
