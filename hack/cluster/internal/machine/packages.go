package machine

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Need is a file or program and the Debian package that brings it.
type Need struct {
	Program string
	File    string
	Package string
	Why     string
}

// RuntimeNeeds are used by the running node.
func RuntimeNeeds() []Need {
	return []Need{
		{Program: "ip", Package: "iproute2", Why: "the link to the node"},
		{Program: "iptables", Package: "iptables", Why: "kube-proxy and the pod network"},
		{Program: "nsenter", Package: "util-linux", Why: "commands inside the node"},
		{Program: "mount", Package: "mount", Why: "the kubelet's volumes"},
		{Program: "mkfs.ext4", Package: "e2fsprogs", Why: "volumes of claims"},
		{File: "/etc/ssl/certs/ca-certificates.crt", Package: "ca-certificates", Why: "fetching Go modules"},
	}
}

// BuildNeeds are used to compile runc, the only program that needs C.
func BuildNeeds() []Need {
	return []Need{
		{Program: "gcc", Package: "gcc", Why: "compiling runc"},
		{File: "/usr/include/stdlib.h", Package: "libc6-dev", Why: "compiling runc"},
		{File: "/usr/include/seccomp.h", Package: "libseccomp-dev", Why: "seccomp in runc"},
		{Program: "pkg-config", Package: "pkg-config", Why: "finding libseccomp"},
	}
}

// Missing keeps the needs that the machine doesn't meet yet.
func Missing(needs []Need) []Need {
	return slices.DeleteFunc(slices.Clone(needs), Need.met)
}

func (n Need) met() bool {
	if n.File != "" {
		_, err := os.Stat(n.File)
		return err == nil
	}
	if _, err := exec.LookPath(n.Program); err == nil {
		return true
	}
	_, err := os.Stat(filepath.Join("/usr/sbin", n.Program))
	return err == nil
}

// Install brings what is missing, or names it all when it may not.
func Install(out io.Writer, missing []Need, allowed bool) error {
	if len(missing) == 0 {
		return nil
	}
	names := packageNames(missing)
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("missing on this machine, which has no apt-get: %s; install them", describe(missing))
	}
	if !allowed {
		return fmt.Errorf("missing: %s; run apt-get install %s, or unset TOOLCALL_NO_INSTALL", describe(missing), strings.Join(names, " "))
	}
	fmt.Fprintf(out, "installing Debian packages: %s\n", describe(missing))
	// Another program may be installing something.
	args := append([]string{"-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends"}, names...)
	if err := aptGet(args...); err == nil {
		return nil
	}
	if err := aptGet("update"); err != nil {
		return err
	}
	return aptGet(args...)
}

func aptGet(args ...string) error {
	cmd := exec.Command("apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, output.String())
	}
	return nil
}

func packageNames(needs []Need) []string {
	var names []string
	for _, n := range needs {
		names = append(names, n.Package)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func describe(needs []Need) string {
	var parts []string
	for _, n := range needs {
		parts = append(parts, fmt.Sprintf("%s (%s)", n.Package, n.Why))
	}
	return strings.Join(parts, ", ")
}
