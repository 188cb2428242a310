package runner

import (
	"testing"
	"testing/fstest"
)

func TestTheMemoryOfAControlGroup(t *testing.T) {
	const mib = 1 << 20
	v1 := map[string]string{
		"memory.usage_in_bytes": "104857600\n", "memory.limit_in_bytes": "209715200\n",
		"memory.stat": "cache 1\ninactive_file 7\ntotal_cache 9\ntotal_inactive_file 10485760\ntotal_active_file 20971520\n",
	}
	v2 := map[string]string{
		"memory.current": "104857600\n", "memory.max": "209715200\n",
		"memory.stat": "anon 1\nfile 9\ninactive_file 10485760\nactive_file 10485760\nslab_reclaimable 10485760\nslab_unreclaimable 5\n",
	}
	with := func(files map[string]string, name, value string) map[string]string {
		changed := map[string]string{name: value}
		for n, v := range files {
			if n != name {
				changed[n] = v
			}
		}
		return changed
	}
	for name, c := range map[string]struct {
		groups, dir  string
		files        map[string]string
		found        bool
		limit        int64
		used, needed int64
	}{
		"version 2, in a container": {"0::/\n", "sys/fs/cgroup", v2, true, 200 * mib, 100 * mib, 70 * mib},
		"version 2, on a host":      {"0::/a/b\n", "sys/fs/cgroup/a/b", v2, true, 200 * mib, 100 * mib, 70 * mib},
		"version 1, in a container": {"0::/\n5:memory:/kubepods/x\n", "sys/fs/cgroup/memory", v1, true, 200 * mib, 100 * mib, 70 * mib},
		"version 1, on a host":      {"5:hugetlb,memory:/x\n", "sys/fs/cgroup/memory/x", v1, true, 200 * mib, 100 * mib, 70 * mib},
		"version 2, no limit":       {"0::/\n", "sys/fs/cgroup", with(v2, "memory.max", "max\n"), true, 0, 100 * mib, 70 * mib},
		"version 1, no limit":       {"5:memory:/\n", "sys/fs/cgroup/memory", with(v1, "memory.limit_in_bytes", "9223372036854771712\n"), true, 0, 100 * mib, 70 * mib},
		"no statistics":             {"0::/\n", "sys/fs/cgroup", with(v2, "memory.stat", ""), true, 200 * mib, 100 * mib, 100 * mib},
		"wrong statistics":          {"0::/\n", "sys/fs/cgroup", with(v2, "memory.stat", "active_file 999999999999\n"), true, 200 * mib, 100 * mib, 0},
		"no memory controller":      {"0::/\n3:cpu:/\n", "sys/fs/cgroup", nil, false, 0, 0, 0},
		"no group":                  {"", "sys/fs/cgroup", v2, false, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{"proc/self/cgroup": {Data: []byte(c.groups)}}
			for file, data := range c.files {
				root[c.dir+"/"+file] = &fstest.MapFile{Data: []byte(data)}
			}
			g := findMemoryGroup(root)
			if (g != nil) != c.found {
				t.Fatalf("found %+v", g)
			}
			if g == nil {
				return
			}
			limit, ok := g.Limit()
			if ok != (c.limit != 0) || ok && limit != c.limit || g.Used() != c.used || g.Needed() != c.needed {
				t.Errorf("limit %d, %v; used %d; needed %d", limit, ok, g.Used(), g.Needed())
			}
		})
	}
}

func TestWhetherTheKernelKillsAGroupTogether(t *testing.T) {
	for name, c := range map[string]struct {
		groups, used, together string
		want                   bool
	}{
		"version 2, as the kubelet has it":        {"0::/\n", "sys/fs/cgroup/memory.current", "1\n", true},
		"version 2, of a kubelet that is told to": {"0::/\n", "sys/fs/cgroup/memory.current", "0\n", false},
		"version 2, without the file":             {"0::/\n", "sys/fs/cgroup/memory.current", "", false},
		"version 1":                               {"5:memory:/\n", "sys/fs/cgroup/memory/memory.usage_in_bytes", "", false},
	} {
		root := fstest.MapFS{"proc/self/cgroup": {Data: []byte(c.groups)}, c.used: {Data: []byte("1\n")}}
		if c.together != "" {
			root["sys/fs/cgroup/memory.oom.group"] = &fstest.MapFile{Data: []byte(c.together)}
		}
		if g := findMemoryGroup(root); g == nil || g.EndsTogether() != c.want {
			t.Errorf("%s: found %+v", name, g)
		}
	}
}
