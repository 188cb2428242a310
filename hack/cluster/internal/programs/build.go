package programs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
	// The go command names a file after its package.
	output := tmp + string(filepath.Separator)
	if len(programs) == 1 {
		output = filepath.Join(tmp, programs[0].Name)
	}
	args = append(args, "-o", output)
	for _, p := range programs {
		args = append(args, p.Package)
	}
	if err := goBuild(r.Source, args, "CGO_ENABLED="+cgo); err != nil {
		return err
	}
	for _, p := range programs {
		built := filepath.Base(p.Package)
		if len(programs) == 1 {
			built = p.Name
		}
		if err := os.Rename(filepath.Join(tmp, built), r.Path(p.Name)); err != nil {
			return err
		}
	}
	return nil
}

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
// server and returns it.
func LinkAssets(all []Resolved, cache string) (string, error) {
	dir := filepath.Join(cache, "assets", assetsName(all))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, name := range Assets {
		link := filepath.Join(dir, name)
		target := Find(all, name)
		if have, err := os.Readlink(link); err == nil && have == target {
			continue
		}
		os.Remove(link)
		if err := os.Symlink(target, link); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func assetsName(all []Resolved) string {
	var names []string
	for _, r := range all {
		if r.Name == "etcd" || strings.HasPrefix(r.Name, "kubernetes") {
			names = append(names, filepath.Base(r.Dir))
		}
	}
	return strings.Join(names, "_")
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
