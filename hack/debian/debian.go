// Package debian installs the Debian packages that building images and running the local node take.
package debian

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

// missing keeps the needs that the machine doesn't meet yet.
func missing(needs []Need) []Need {
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
func Install(out io.Writer, needs []Need, allowed bool) error {
	missing := missing(needs)
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
