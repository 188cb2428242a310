package programs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const gibPerCompiler = 3

// Build compiles programs of a module into the cache with one go command, which links some while it compiles others. Being killed
// half way leaves at most a temporary folder whose files nobody takes for programs.
func Build(r Resolved, programs []Program) error {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(r.Dir, ".building-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	// These flags are those of hack/lib.sh: packages that the operator imports, too, are compiled once.
	args := []string{"build", "-trimpath", "-gcflags=all=-dwarf=false", "-buildvcs=false", "-mod=readonly", "-p", strconv.Itoa(parallelism()),
		"-tags", r.Tags, "-ldflags", r.ldflags(r.Version)}
	cgo := "0"
	if r.CGO {
		cgo = "1"
	}
	args = append(args, "-o", tmp+string(filepath.Separator))
	for _, p := range programs {
		args = append(args, p.Package)
	}
	if err := goBuild(r.Source, args, "CGO_ENABLED="+cgo); err != nil {
		return err
	}
	for _, p := range programs {
		if err := os.Rename(filepath.Join(tmp, p.file()), r.Path(p.Name)); err != nil {
			return err
		}
	}
	return nil
}

var majorVersion = regexp.MustCompile(`/v[0-9]+$`)

// file is what the go command names the program after: its package, without a major version.
func (p Program) file() string { return path.Base(majorVersion.ReplaceAllString(p.Package, "")) }

func goBuild(dir string, args []string, env ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	// Without garbage collection below the limit, compilers take a quarter less time; parallelism leaves them the memory.
	cmd.Env = append(os.Environ(), append(env, "GOFLAGS=", "GOWORK=off", "GOGC=off", "GOMEMLIMIT=2500MiB")...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, tail(output.String(), 30))
	}
	return nil
}

// parallelism keeps the compilers' memory below what the machine has: the
// biggest packages and the linker want gigabytes each.
func parallelism() int {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 1
	}
	gib := int(info.Totalram * uint64(info.Unit) >> 30)
	return max(1, min(runtime.NumCPU(), gib/gibPerCompiler))
}

func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// LinkAssets makes one folder with the programs for tests against a bare API
// server and returns it. It is named after the folders that they are kept in.
func LinkAssets(all []Resolved, cache string) (string, error) {
	dir := filepath.Join(cache, "assets", assetsName(all))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, name := range Assets {
		if err := os.Symlink(Find(all, name), filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
	}
	return dir, nil
}

func assetsName(all []Resolved) string {
	var names []string
	for _, name := range Assets {
		names = append(names, filepath.Base(filepath.Dir(Find(all, name))))
	}
	return strings.Join(slices.Compact(names), "_")
}

// Find returns where the program called name is kept, or "".
func Find(all []Resolved, name string) string {
	for _, r := range all {
		for _, p := range r.Programs {
			if p.Name == name {
				return r.Path(name)
			}
		}
	}
	return ""
}
