package supervisor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// setUpMounts cuts the namespace off from the machine's mounts, then shares
// mounts among everything inside it, as the kubelet expects.
func setUpMounts(p Plan) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	sources, err := openAll(p.Binds)
	if err != nil {
		return err
	}
	for _, dir := range p.Hide {
		if err := hide(dir, p.StateDir); err != nil {
			return fmt.Errorf("giving the node a %s of its own: %w", dir, err)
		}
	}
	for i, b := range p.Binds {
		if err := bind(sources[i], b.To); err != nil {
			return fmt.Errorf("showing %s as %s: %w", b.From, b.To, err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing the mounts: %w", err)
	}
	return nil
}

// openAll takes hold of the folders before anything is mounted over them.
func openAll(binds []Bind) ([]*os.File, error) {
	var files []*os.File
	for _, b := range binds {
		f, err := openFolder(b.From)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

func openFolder(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// hide mounts an empty folder over dir and lets the state folder shine through.
func hide(dir, stateDir string) error {
	inside := strings.HasPrefix(stateDir+"/", filepath.Clean(dir)+"/")
	var state *os.File
	if inside {
		f, err := openFolder(stateDir)
		if err != nil {
			return err
		}
		state = f
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return err
	}
	if !inside {
		return nil
	}
	return bind(state, stateDir)
}

func bind(from *os.File, to string) error {
	defer from.Close()
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return unix.Mount(fmt.Sprintf("/proc/self/fd/%d", from.Fd()), to, "", unix.MS_BIND|unix.MS_REC, "")
}

func setUpNetwork(p Plan) error {
	steps := [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "addr", "add", p.Address, "dev", p.Interface},
		{"ip", "link", "set", p.Interface, "up"},
		// One rule for all pods: the network plugin would start iptables a dozen times for each.
		{"iptables", "-w", "-t", "nat", "-A", "POSTROUTING", "-s", p.Pods, "!", "-d", p.Pods, "-j", "MASQUERADE"},
	}
	for _, r := range p.Routes {
		steps = append(steps, []string{"ip", "route", "add", r, "dev", p.Interface})
	}
	for _, args := range steps {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = p.Env
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("letting the node forward pods' packets: %w", err)
	}
	return nil
}
