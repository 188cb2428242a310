package machine

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const minFreeBytes = 2 << 30

// RequireRoot fails where namespaces can't be made at all.
func RequireRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("the local cluster needs root (namespaces, cgroups, mounts): run it with sudo -E, or use your own cluster through KUBECONFIG")
	}
	return nil
}

// Preflight names everything about the machine that would make a start fail.
func Preflight(stateParent string) error {
	return errors.Join(requireCapabilities(), requireCgroups(), requireFilesystems(), requireSpace(stateParent))
}

func requireCapabilities() error {
	caps, err := effectiveCapabilities()
	if err != nil {
		return err
	}
	for name, bit := range map[string]int{"CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN, "CAP_NET_ADMIN": unix.CAP_NET_ADMIN} {
		if caps&(1<<bit) == 0 {
			return fmt.Errorf("%s is missing, so no namespace can be set up: run on the machine itself, or in a privileged container", name)
		}
	}
	return nil
}

func requireCgroups() error {
	mounts, err := CgroupMounts()
	if err != nil {
		return err
	}
	have, err := controllers(mounts)
	if err != nil {
		return err
	}
	var missing []string
	for _, c := range []string{"cpu", "cpuset", "memory", "pids"} {
		if !slices.Contains(have, c) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("cgroup controllers missing below %s: %s; mount or enable them", cgroupMount, strings.Join(missing, ", "))
	}
	return nil
}

func requireFilesystems() error {
	text, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return fmt.Errorf("reading which file systems the kernel has: %w", err)
	}
	if !slices.Contains(strings.Fields(string(text)), "overlay") {
		return errors.New("the kernel has no overlay file system loaded: run modprobe overlay")
	}
	return nil
}

func requireSpace(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("looking for free space in %s: %w", dir, err)
	}
	if free := st.Bavail * uint64(st.Bsize); free < minFreeBytes {
		return fmt.Errorf("%s has %d MiB free, the cluster needs %d: make room or set TOOLCALL_CLUSTER_DIR", dir, free>>20, minFreeBytes>>20)
	}
	return nil
}
