package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// CgroupMount is one mounted cgroup hierarchy.
type CgroupMount struct {
	Path        string
	Controllers []string
	V2          bool
}

// CgroupMounts lists the hierarchies that this process sees.
func CgroupMounts() ([]CgroupMount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading the mounts: %w", err)
	}
	return parseCgroupMounts(string(text)), nil
}

func parseCgroupMounts(mountinfo string) []CgroupMount {
	var mounts []CgroupMount
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 || !strings.HasPrefix(left[4], cgroupMount) {
			continue
		}
		switch right[0] {
		case "cgroup2":
			mounts = append(mounts, CgroupMount{Path: left[4], V2: true})
		case "cgroup":
			mounts = append(mounts, CgroupMount{Path: left[4], Controllers: strings.Split(right[2], ",")})
		}
	}
	return mounts
}

func controllers(mounts []CgroupMount) ([]string, error) {
	var all []string
	for _, m := range mounts {
		all = append(all, m.Controllers...)
		if !m.V2 {
			continue
		}
		text, err := os.ReadFile(filepath.Join(m.Path, "cgroup.controllers"))
		if err != nil {
			return nil, fmt.Errorf("reading the controllers of %s: %w", m.Path, err)
		}
		all = append(all, strings.Fields(string(text))...)
	}
	return all, nil
}

// MakeCgroup makes the cgroup called name at the top of every hierarchy, with
// every controller that Kubernetes uses handed down to it.
func MakeCgroup(name string) error {
	mounts, err := CgroupMounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		dir := filepath.Join(m.Path, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("making a cgroup: %w", err)
		}
		if err := handDown(m, dir); err != nil {
			return err
		}
	}
	return nil
}

func handDown(m CgroupMount, dir string) error {
	if m.V2 {
		return errors.Join(enableControllers(m.Path), enableControllers(dir))
	}
	if !slices.Contains(m.Controllers, "cpuset") {
		return nil
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(m.Path, file))
		if err != nil {
			return fmt.Errorf("reading the machine's %s: %w", file, err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
			return fmt.Errorf("handing %s down: %w", file, err)
		}
	}
	return nil
}

func enableControllers(dir string) error {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("reading the controllers of %s: %w", dir, err)
	}
	for _, c := range strings.Fields(string(have)) {
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0o644)
		if err != nil && slices.Contains([]string{"cpu", "cpuset", "memory", "pids"}, c) {
			return fmt.Errorf("handing the %s controller down from %s: %w (processes there must be moved into a cgroup of their own first)", c, dir, err)
		}
	}
	return nil
}

// RemoveCgroup removes the cgroup called name and all below it from every
// hierarchy. Processes that are just dying are waited for.
func RemoveCgroup(name string, patience time.Duration) error {
	mounts, err := CgroupMounts()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(patience)
	for _, m := range mounts {
		dir := filepath.Join(m.Path, name)
		for {
			err := removeTree(dir)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("removing a cgroup: %w", err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
