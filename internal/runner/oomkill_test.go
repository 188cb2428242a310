package runner

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"toolcall.dev/operator/internal/result"
)

var memoryGroup = regexp.MustCompile(`(?m)^\d+:(?:[^:\n]*,)?memory(?:,[^:\n]*)?:(.*)$`)

const groupLimit = "100663296"

// limitedGroup is a control group with 96 MiB of memory, and how to start a process in it. together says that the kernel kills
// all of its processes when it kills one.
func limitedGroup(t *testing.T, together bool) []string {
	t.Helper()
	groups, _ := os.ReadFile("/proc/self/cgroup")
	own := memoryGroup.FindSubmatch(groups)
	files := map[string]string{"memory.limit_in_bytes": groupLimit}
	// Swap, where it is counted, would put the end off.
	swap := map[string]string{"memory.memsw.limit_in_bytes": groupLimit}
	dir := "/sys/fs/cgroup"
	if own != nil {
		dir = filepath.Join(dir, "memory", string(own[1]))
	} else {
		files, swap = map[string]string{"memory.max": groupLimit}, map[string]string{"memory.swap.max": "0"}
		// Groups below the first one alone can have a limit beside processes of their parent.
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
			t.Skip("can't limit memory: ", err)
		}
	}
	if together {
		if own != nil {
			t.Skip("control groups of version 1 don't end together")
		}
		files["memory.oom.group"] = "1"
	}
	dir = filepath.Join(dir, "runner-test-"+itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("can't make a control group: ", err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	for name, value := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0); err != nil {
			t.Skip("can't limit memory: ", err)
		}
	}
	for name, value := range swap {
		_ = os.WriteFile(filepath.Join(dir, name), []byte(value), 0)
	}
	return []string{"sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, dir}
}

func TestTheKernelsOwnOOMKill(t *testing.T) {
	needs(t, "python3")
	const eat = "b = []\nwhile True: b.append(bytearray(1 << 20))"
	for name, c := range map[string]struct {
		argv []string
		want want
	}{
		"of the process": {[]string{"python3", "-c", eat},
			want{reason: result.OOMKilled, signal: "SIGKILL"}},
		"of a shell's last command": {[]string{"bash", "-c", `python3 -c "$0"; exit $?`, eat},
			want{reason: result.OOMKilled}},
	} {
		t.Run(name, func(t *testing.T) {
			group := limitedGroup(t, false)
			c.want.check(t, superviseApart(t, supervision{Argv: c.argv, Dir: "/"}, nil, group...).Outcome)
		})
	}
}

// Where the kernel kills all processes of a container, the supervisor among them, the command is ended shortly before.
func TestTheKernelWouldKillTheSupervisorToo(t *testing.T) {
	needs(t, "python3")
	group := limitedGroup(t, true)
	const eat = "import time\nprint('start', flush=True)\nb = []\nwhile True:\n    b.append(b'x' * (1 << 20))\n    time.sleep(0.01)"
	start := "start\n"
	o := superviseApart(t, supervision{Argv: []string{"python3", "-c", eat}, Dir: "/"}, nil, group...).Outcome
	want{reason: result.OOMKilled, signal: "SIGKILL", stdout: &start}.check(t, o)
	if o.Message != nearlyOutOfMemory.Message {
		t.Errorf("the message is %q", o.Message)
	}
}
