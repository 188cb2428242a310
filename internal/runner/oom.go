package runner

import (
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// CgroupOOMKills returns how many processes of this process's control group the kernel has killed for memory. known is
// false if that can't be read.
func CgroupOOMKills() (count uint64, known bool) {
	return cgroupOOMKills(os.DirFS("/"))
}

// Files in which the versions of control groups count.
const (
	oomVersion1 = "memory.oom_control"
	oomVersion2 = "memory.events"
)

func cgroupOOMKills(root fs.FS) (uint64, bool) {
	for g := range controlGroups(root, "memory") {
		name := oomVersion2
		if g.version == 1 {
			name = oomVersion1
		}
		if data, err := g.read(name); err == nil {
			if n, ok := oomKillField(data); ok {
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
