package programs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// toolchain is the part of a cache key that the Go installation decides.
type toolchain struct {
	version, os, arch string
}

// FindSource looks upward from dir for the folder that holds cluster/modules.
func FindSource(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		for _, candidate := range []string{at, filepath.Join(at, "hack")} {
			if st, err := os.Stat(filepath.Join(candidate, "cluster", "modules")); err == nil && st.IsDir() {
				return candidate, nil
			}
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("the build modules aren't above %s: run this inside a checkout of the project", dir)
		}
	}
}

// Resolved is a module together with where its programs are, or will be.
type Resolved struct {
	Module
	Version string
	Source  string
	Dir     string
}

// Path is where a program of the module is kept.
func (r Resolved) Path(program string) string { return filepath.Join(r.Dir, program) }

// Missing lists the programs that still have to be built.
func (r Resolved) Missing() []Program {
	var missing []Program
	for _, p := range r.Programs {
		if _, err := os.Stat(r.Path(p.Name)); err != nil {
			missing = append(missing, p)
		}
	}
	return missing
}

// Resolve finds out versions and cache folders of modules.
func Resolve(source, cache string, modules []Module) ([]Resolved, error) {
	// This command was built by the same installation.
	tc := toolchain{runtime.Version(), runtime.GOOS, runtime.GOARCH}
	var all []Resolved
	for _, m := range modules {
		r, err := resolve(m, filepath.Join(source, "cluster", "modules", m.folder()), cache, tc)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func resolve(m Module, dir, cache string, tc toolchain) (Resolved, error) {
	src, err := readSources(dir)
	if err != nil {
		return Resolved{}, fmt.Errorf("reading build module %s: %w", m.folder(), err)
	}
	version, err := requiredVersion(string(src.mod), m.Upstream)
	if err != nil {
		return Resolved{}, err
	}
	name := fmt.Sprintf("%s-%s-%s", m.folder(), version, key(m, version, src, tc))
	return Resolved{Module: m, Version: version, Source: dir, Dir: filepath.Join(cache, "bin", name)}, nil
}

// sources are a build module's own files. Most modules have no code.
type sources struct {
	mod, sum, code []byte
}

func readSources(dir string) (sources, error) {
	mod, err1 := os.ReadFile(filepath.Join(dir, "go.mod"))
	sum, err2 := os.ReadFile(filepath.Join(dir, "go.sum"))
	files, err3 := filepath.Glob(filepath.Join(dir, "*.go"))
	s := sources{mod: mod, sum: sum}
	err := errors.Join(err1, err2, err3)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, readErr := os.ReadFile(file)
		err = errors.Join(err, readErr)
		s.code = fmt.Appendf(s.code, "%s %d\n%s", filepath.Base(file), len(text), text)
	}
	return s, err
}

func requiredVersion(gomod, path string) (string, error) {
	for line := range strings.Lines(gomod) {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(f) >= 2 && f[0] == path && strings.HasPrefix(f[1], "v") {
			return f[1], nil
		}
	}
	return "", fmt.Errorf("no go.mod line requires %s", path)
}

func key(m Module, version string, src sources, tc toolchain) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s %s\n%s\n%t\n%s\n", tc.version, tc.os, tc.arch, m.Tags, m.CGO, m.ldflags(version))
	fmt.Fprintf(h, "%d %d\n", len(src.mod), len(src.sum))
	h.Write(src.mod)
	h.Write(src.sum)
	h.Write(src.code)
	return hex.EncodeToString(h.Sum(nil))[:12]
}
