package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"toolcall.dev/operator/hack/cluster/internal/machine"
	"toolcall.dev/operator/hack/cluster/internal/settings"
)

const (
	stopPatience   = 6 * time.Second
	killPatience   = 10 * time.Second
	cgroupPatience = 10 * time.Second
	markerName     = ".toolcall-cluster"
)

// Stop ends the supervisor, and by that every process of the node.
func (r *Running) Stop() error {
	if r.endWith(syscall.SIGTERM, stopPatience) || r.endWith(syscall.SIGKILL, killPatience) {
		return nil
	}
	return fmt.Errorf("process %d, the node's first, doesn't end", r.PID)
}

func (r *Running) endWith(signal syscall.Signal, patience time.Duration) bool {
	if err := syscall.Kill(r.PID, signal); err != nil {
		return !r.Alive()
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if !r.Alive() {
			return true
		}
	}
	return false
}

// HasInterface tells whether the machine has an interface of that name.
func HasInterface(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

// Clean takes away what is outside the namespaces: the machine's end of the
// link, cgroups, changed kernel settings, and the state folder. It is for a
// cluster that has ended, in whichever way.
func Clean(dir string) error {
	before, err := readRecord(dir)
	errs := []error{err}
	if HasInterface(settings.HostInterface) {
		errs = append(errs, ip("link", "del", settings.HostInterface))
	}
	return errors.Join(append(errs, machine.RemoveCgroup(settings.CgroupRoot, cgroupPatience), before.restoreSysctls(), removeState(dir))...)
}

// Claimable tells why dir can't become a cluster's state folder, if so.
func Claimable(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("looking into the state folder: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s isn't empty and isn't a cluster's: set TOOLCALL_CLUSTER_DIR to another folder", dir)
	}
	return nil
}

// Claim makes the state folder, or takes an empty one.
func Claim(dir string) error {
	if err := Claimable(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the state folder: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, markerName), nil, 0o644)
}

// Claimed tells whether dir is a cluster's state folder.
func Claimed(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, markerName))
	return err == nil
}

// removeState refuses to walk into anything that is mounted below the folder,
// and into folders that no cluster has claimed. The marker goes last.
func removeState(dir string) error {
	if !Claimed(dir) {
		return nil
	}
	mount, err := mountBelow(dir)
	if err != nil {
		return err
	}
	if mount != "" {
		return fmt.Errorf("%s is mounted below the cluster's state: unmount it, then run this again", mount)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("removing the cluster's state: %w", err)
	}
	for _, e := range entries {
		if e.Name() == markerName {
			continue
		}
		if err := removeStubborn(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("removing the cluster's state: %w", err)
		}
	}
	return os.RemoveAll(dir)
}

// removeStubborn tries again while processes that are just dying still write.
func removeStubborn(path string) error {
	deadline := time.Now().Add(killPatience)
	for {
		err := os.RemoveAll(path)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func mountBelow(dir string) (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("reading the mounts: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			return f[4], nil
		}
	}
	return "", nil
}
