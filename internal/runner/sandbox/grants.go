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
func (d *Domain) grantReads(path string) {
	if !d.ruleset.Handles(kernel.AccessRead) {
		return
	}
	var hidden []string
	if d.programs != nil {
		hidden = d.programs.HiddenDirs(path)
	}
	if d.rules.ReadPaths == nil {
		d.grantExcept("/", hidden, kernel.AccessRead)
		return
	}
	for _, real := range programs.Roots(slices.Concat(d.rules.ReadPaths, d.rules.WritePaths, systemPaths, programs.DevicePaths)) {
		if !isHidden(real, hidden) {
			d.grantExcept(real, hidden, kernel.AccessRead)
		}
	}
}

func isHidden(path string, hidden []string) bool {
	return slices.ContainsFunc(hidden, func(dir string) bool { return programs.IsBelow(path, dir) })
}

// grantWrites grants writing, but never below /proc: another process's memory can be written there.
func (d *Domain) grantWrites() {
	if !d.ruleset.Handles(kernel.AccessContent) {
		return
	}
	hidden := []string{"/proc"}
	if d.rules.WritePaths == nil {
		d.grantExcept("/", hidden, kernel.AccessContent)
	}
	for _, real := range d.writePaths {
		if !isHidden(real, hidden) {
			d.grantExcept(real, hidden, kernel.AccessWrite)
		}
	}
}

// grantExcept grants a right below a directory, but not below the hidden ones. Landlock can't take away, so that their
// siblings are granted one by one.
func (d *Domain) grantExcept(root string, hidden []string, access uint64) {
	if !slices.ContainsFunc(hidden, func(dir string) bool { return programs.IsBelow(dir, root) }) {
		d.ruleset.AllowPath(root, access)
		return
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return // what can't be listed stays hidden
	}
	for _, entry := range entries {
		path := filepath.Join(root, entry.Name())
		if entry.Type()&os.ModeSymlink == 0 && !slices.Contains(hidden, path) {
			d.grantExcept(path, hidden, access)
		}
	}
}
