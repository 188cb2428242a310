package machine

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const cgroupMount = "/sys/fs/cgroup"

// Facts is what decides how the components are configured.
type Facts struct {
	CgroupV2    bool
	SysResource bool
}

// Look reads the facts of the running machine.
func Look() (Facts, error) {
	v2, err := isCgroupV2()
	if err != nil {
		return Facts{}, err
	}
	caps, err := effectiveCapabilities()
	if err != nil {
		return Facts{}, err
	}
	return Facts{CgroupV2: v2, SysResource: caps&(1<<unix.CAP_SYS_RESOURCE) != 0}, nil
}

func isCgroupV2() (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(cgroupMount, &st); err != nil {
		return false, fmt.Errorf("%s can't be read (%w): mount cgroups there", cgroupMount, err)
	}
	return st.Type == unix.CGROUP2_SUPER_MAGIC, nil
}

func effectiveCapabilities() (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("reading this process's capabilities: %w", err)
	}
	return parseCapabilities(string(status))
}

func parseCapabilities(status string) (uint64, error) {
	for line := range strings.Lines(status) {
		if text, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strconv.ParseUint(strings.TrimSpace(text), 16, 64)
		}
	}
	return 0, fmt.Errorf("/proc/self/status names no effective capabilities")
}
