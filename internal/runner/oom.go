package runner

import (
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// CgroupOOMKills returns how many processes of this process's control group the kernel has killed for memory. known is
// false if that can't be read.
func CgroupOOMKills() (count uint64, known bool) {
	return cgroupOOMKills(os.DirFS("/"))
}

// oomFile is the file in which a version of control groups counts.
type oomFile struct{ mount, name string }

var (
	oomVersion1 = oomFile{"sys/fs/cgroup/memory", "memory.oom_control"}
	oomVersion2 = oomFile{"sys/fs/cgroup", "memory.events"}
)

func cgroupOOMKills(root fs.FS) (uint64, bool) {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(groups)) {
		// hierarchy:controllers:path, version 2 being 0::path
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		file := oomVersion2
		switch {
		case strings.Contains(","+fields[1]+",", ",memory,"):
			file = oomVersion1
		case fields[1] != "":
			continue
		}
		if n, ok := file.read(root, fields[2]); ok {
			return n, true
		}
	}
	return 0, false
}

// read tries the path of the group, then the mount: in a container the mount shows only the group, whatever the path of
// the group is.
func (f oomFile) read(root fs.FS, group string) (uint64, bool) {
	for _, dir := range []string{path.Join(f.mount, group), f.mount} {
		if data, err := fs.ReadFile(root, path.Join(dir, f.name)); err == nil {
			if n, ok := oomKillField(string(data)); ok {
				return n, true
			}
		}
	}
	return 0, false
}

func oomKillField(data string) (uint64, bool) {
	for line := range strings.Lines(data) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			n, err := strconv.ParseUint(value, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
