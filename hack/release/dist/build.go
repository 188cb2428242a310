package dist

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	versionPackage = "toolcall.dev/operator/internal/version"
	docsPackage    = "toolcall.dev/operator/internal/docurl"
)

// target is one program for one platform.
type target struct{ program, os, arch string }

func (t target) String() string { return t.program + " for " + t.os + "/" + t.arch }

// fileName tells the target's files apart from other targets'.
func (t target) fileName() string { return t.program + "_" + t.os + "_" + t.arch }

// storeProgram is the output store, whose module is one of its own: it needs more than all others.
const storeProgram = "store"

// consoleProgram is the page for people.
const consoleProgram = "console"

// folder has the program's main package.
func (t target) folder() string {
	if t.program == storeProgram {
		return filepath.Join("hack", "images", storeProgram)
	}
	return filepath.Join("cmd", t.program)
}

// build compiles a target and returns the program's path. Nothing of this machine gets into the program: no paths,
// no C, no state of the checkout but what the version says.
func (r *release) build(ctx context.Context, t target) (string, error) {
	r.Say("building %s", t)
	path := filepath.Join(r.work, "bin", t.fileName())
	flags := fmt.Sprintf("-s -w -X %[1]s.release=%[2]s -X %[1]s.commit=%[3]s -X %[4]s.base=%[5]s", versionPackage, r.Version, r.Commit, docsPackage, r.DocsURL)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", flags, "-o", path, ".")
	cmd.Dir = filepath.Join(r.Source, t.folder())
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOOS="+t.os, "GOARCH="+t.arch)
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", t, err, strings.TrimSpace(string(output)))
	}
	return path, nil
}

// buildWithSBOM also writes, to sbom/, what the program was made of.
func (r *release) buildWithSBOM(ctx context.Context, t target) (path string, sbom []byte, err error) {
	if path, err = r.build(ctx, t); err != nil {
		return "", nil, err
	}
	if sbom, err = r.sbom(t, path); err != nil {
		return "", nil, err
	}
	return path, sbom, r.write("sbom/"+t.fileName()+".cdx.json", sbom)
}
