package runner

import (
	"testing"
	"testing/fstest"
)

func TestWhereOOMKillsAreCounted(t *testing.T) {
	const v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"
	const v2 = "low 0\nhigh 0\nmax 3\noom 1\noom_kill 9\noom_group_kill 1\n"
	for name, c := range map[string]struct {
		files map[string]string
		count uint64
		known bool
	}{
		"version 2, in a container": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.events": v2}, 9, true},
		"version 2, on a host": {map[string]string{
			"proc/self/cgroup": "0::/a.slice/b\n", "sys/fs/cgroup/a.slice/b/memory.events": v2}, 9, true},
		"version 2, a foreign path": {map[string]string{
			"proc/self/cgroup": "0::/../../kubepods/x\n", "sys/fs/cgroup/memory.events": v2}, 9, true},
		"version 1, in a container": {map[string]string{
			"proc/self/cgroup":                        "9:cpu,cpuacct:/k\n4:memory:/k/x\n0::/\n",
			"sys/fs/cgroup/memory/memory.oom_control": v1}, 7, true},
		"version 1, on a host": {map[string]string{
			"proc/self/cgroup": "4:hugetlb,memory:/k/x\n",
			"sys/fs/cgroup/memory/k/x/memory.oom_control": v1}, 7, true},
		"an old kernel":   {map[string]string{"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.oom_control": "under_oom 0\n"}, 0, false},
		"no groups":       {map[string]string{"proc/self/cgroup": "0::/\n"}, 0, false},
		"no /proc":        {nil, 0, false},
		"a broken number": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.events": "oom_kill x\n"}, 0, false},
		"a broken list":   {map[string]string{"proc/self/cgroup": "what\n\n::\n"}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{}
			for path, data := range c.files {
				root[path] = &fstest.MapFile{Data: []byte(data)}
			}
			if count, known := cgroupOOMKills(root); count != c.count || known != c.known {
				t.Errorf("got %d, %v", count, known)
			}
		})
	}
}
