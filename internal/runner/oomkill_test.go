package runner

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"toolcall.dev/operator/internal/result"
)

var memoryGroup = regexp.MustCompile(`(?m)^\d+:(?:[^:\n]*,)?memory(?:,[^:\n]*)?:(.*)$`)

// limitedGroup is a control group with 96 MiB of memory, and how to start a process in it.
func limitedGroup(t *testing.T) []string {
	t.Helper()
	groups, _ := os.ReadFile("/proc/self/cgroup")
	own := memoryGroup.FindSubmatch(groups)
	if own == nil {
		t.Skip("memory isn't limited by control groups of version 1 here")
	}
	dir := filepath.Join("/sys/fs/cgroup/memory", string(own[1]), "runner-test-"+itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("can't make a control group: ", err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte("100663296"), 0); err != nil {
		t.Skip("can't limit memory: ", err)
	}
	// Swap, where it is counted, would put the end off.
	_ = os.WriteFile(filepath.Join(dir, "memory.memsw.limit_in_bytes"), []byte("100663296"), 0)
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
			group := limitedGroup(t)
			c.want.check(t, superviseApart(t, supervision{Argv: c.argv, Dir: "/"}, nil, group...).Outcome)
		})
	}
}
