package host

import (
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/hack/cluster/internal/settings"
)

// Start makes the namespaces and lets the supervisor of dir go on in them. It outlives this process. The machine's end of
// the link to them gets the address. What the supervisor ends with is sent on the returned channel.
func Start(dir string, address netip.Prefix) (<-chan error, error) {
	executable := filepath.Join(dir, "cluster")
	if err := copySelf(executable); err != nil {
		return nil, fmt.Errorf("putting the supervisor in place: %w", err)
	}
	gateIn, gate, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer gate.Close()
	defer gateIn.Close()
	cmd, err := launch(executable, filepath.Join(dir, settings.PlanName), filepath.Join(dir, "logs", "node.log"), gateIn)
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := link(cmd.Process.Pid, address); err != nil {
		return nil, err
	}
	if _, err := gate.Write([]byte{1}); err != nil {
		return nil, fmt.Errorf("letting the node start: %w", err)
	}
	return ended, nil
}

func launch(executable, plan, logFile string, gate *os.File) (*exec.Cmd, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(executable, InitCommand, plan)
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = gate, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	// What the caller has open, a lock on a file for instance, isn't the node's to hold for as long as it lives.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("keeping the caller's files from the node: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("making the node's namespaces: %w", err)
	}
	return cmd, nil
}

func copySelf(to string) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, from); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// link makes the pair of interfaces between the machine and the node.
func link(pid int, address netip.Prefix) error {
	for _, args := range [][]string{
		{"link", "add", settings.HostInterface, "type", "veth", "peer", "name", settings.NodeInterface, "netns", strconv.Itoa(pid)},
		{"addr", "add", address.String(), "dev", settings.HostInterface},
		{"link", "set", settings.HostInterface, "up"},
	} {
		if err := ip(args...); err != nil {
			return fmt.Errorf("linking the machine with the node: %w", err)
		}
	}
	return nil
}

func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
