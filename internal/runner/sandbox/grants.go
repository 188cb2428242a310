package sandbox

import (
	"os"
	"path/filepath"
	"slices"

	"toolcall.dev/operator/internal/runner/sandbox/kernel"
	"toolcall.dev/operator/internal/runner/sandbox/programs"
)

// systemPaths are what programs read beside their own files, when reading is restricted.
var systemPaths = []string{
	"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/etc", "/opt", "/dev", "/proc", "/sys",
}

// grantReads grants reading, but not of the directories of programs: what isn't listed can't be copied, or mapped by a
// loader. Their listed files were granted with their execution.
func (d *Domain) grantReads(path string) error {
	if !d.ruleset.Handles(kernel.AccessRead) {
		return nil
	}
	var hidden []string
	if d.programs != nil {
		hidden = d.programs.HiddenDirs(path)
	}
	if d.rules.ReadPaths == nil {
		return d.grantExcept("/", hidden, kernel.AccessRead)
	}
	for _, real := range programs.Roots(slices.Concat(d.rules.ReadPaths, d.rules.WritePaths, systemPaths, programs.DevicePaths)) {
		if isHidden(real, hidden) {
			continue
		}
		if err := d.grantExcept(real, hidden, kernel.AccessRead); err != nil {
			return err
		}
	}
	return nil
}

func isHidden(path string, hidden []string) bool {
	return slices.ContainsFunc(hidden, func(dir string) bool { return programs.IsBelow(path, dir) })
}

// grantWrites grants writing, but never below /proc: another process's memory can be written there.
func (d *Domain) grantWrites() error {
	if !d.ruleset.Handles(kernel.AccessContent) {
		return nil
	}
	if d.rules.WritePaths == nil {
		return d.grantExcept("/", []string{"/proc"}, kernel.AccessContent)
	}
	for _, real := range d.writePaths {
		if programs.IsBelow(real, "/proc") {
			continue
		}
		if err := d.grantExcept(real, []string{"/proc"}, kernel.AccessWrite); err != nil {
			return err
		}
	}
	return nil
}

// grantExcept grants a right below a directory, but not below the hidden ones. Landlock can't take away, so that their
// siblings are granted one by one.
func (d *Domain) grantExcept(root string, hidden []string, access uint64) error {
	if !slices.ContainsFunc(hidden, func(dir string) bool { return programs.IsBelow(dir, root) }) {
		return d.ruleset.AllowPath(root, access)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil // what can't be listed stays hidden
	}
	for _, entry := range entries {
		path := filepath.Join(root, entry.Name())
		if entry.Type()&os.ModeSymlink != 0 || slices.Contains(hidden, path) {
			continue
		}
		if err := d.grantExcept(path, hidden, access); err != nil {
			return err
		}
	}
	return nil
}
