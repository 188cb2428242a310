package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"toolcall.dev/operator/hack/debian"
)

const (
	toolTag     = "toolcall.dev/tools:dev"
	debianSuite = "bookworm"
	toolUser    = "tool"
	toolUID     = 1000
	toolPath    = "/usr/local/bin:/usr/bin:/bin"
	recipe      = "1"
)

var toolPackages = []string{
	"bash", "ca-certificates", "coreutils", "curl", "diffutils", "findutils", "gawk", "git", "grep",
	"less", "make", "patch", "procps", "python3", "python3-pip", "sed", "tar",
}

// ToolOptions says how the tool image is made.
type ToolOptions struct {
	// Mirror is where Debian's packages are; debootstrap's own default when empty.
	Mirror   string
	Cache    string
	Install  bool
	Progress io.Writer
}

// Tool makes the image that sample calls run in, or finds it in the cache, and
// returns its tarball.
func Tool(o ToolOptions) (string, error) {
	path := filepath.Join(o.Cache, "images", "tool-"+o.key()+".tar")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if os.Geteuid() != 0 {
		return "", errors.New("making the tool image needs root (debootstrap runs programs in a folder of their own): run it with sudo -E")
	}
	needs := []debian.Need{{Program: "debootstrap", Package: "debootstrap", Why: "the tool image"}}
	if err := debian.Install(o.Progress, needs, o.Install); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	root, err := os.MkdirTemp(filepath.Dir(path), ".rootfs-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(root)
	fmt.Fprintf(o.Progress, "building %s from Debian %s ... ", toolTag, debianSuite)
	started := time.Now()
	if err := o.build(root, path); err != nil {
		fmt.Fprintln(o.Progress, "failed")
		return "", err
	}
	fmt.Fprintf(o.Progress, "%.0f s\n", time.Since(started).Seconds())
	return path, nil
}

func (o ToolOptions) key() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %s %s %q", recipe, toolTag, o.Mirror, debianSuite, runtime.GOARCH, toolPackages))
	return hex.EncodeToString(sum[:6])
}

func (o ToolOptions) build(root, path string) error {
	tree := filepath.Join(root, "tree")
	args := []string{"--variant=minbase", "--include=" + strings.Join(toolPackages, ","), debianSuite, tree}
	if o.Mirror != "" {
		args = append(args, o.Mirror)
	}
	err := run("", "debootstrap", args...)
	if err != nil {
		return err
	}
	if err := prepareTree(tree); err != nil {
		return err
	}
	return save(path, toolTag, func(dir string) (v1.Image, error) {
		layer, err := treeLayer(filepath.Join(dir, "layer.tar"), tree)
		if err != nil {
			return nil, err
		}
		return assemble(v1.Config{
			Cmd: []string{"/bin/bash"}, User: fmt.Sprintf("%d:%d", toolUID, toolUID), WorkingDir: "/workspace",
			Env: []string{"PATH=" + toolPath, "HOME=/home/" + toolUser, "LANG=C.UTF-8"},
		}, runtime.GOARCH, layer)
	})
}

// treeLayer writes everything below a folder into a layer, which is at path: with its modes, owners and links.
func treeLayer(path, tree string) (v1.Layer, error) {
	pack := exec.Command("tar", "--create", "--file="+path, "--directory="+tree, "--format=gnu", "--sort=name", "--numeric-owner",
		fmt.Sprintf("--mtime=@%d", Epoch.Unix()), ".")
	if output, err := pack.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pack %s: %w: %s", tree, err, bytes.TrimSpace(output))
	}
	return layerOf(path)
}

func prepareTree(tree string) error {
	id := fmt.Sprint(toolUID)
	if err := run(tree, "groupadd", "--gid", id, toolUser); err != nil {
		return err
	}
	if err := run(tree, "useradd", "--uid", id, "--gid", id, "--create-home", "--shell", "/bin/bash", toolUser); err != nil {
		return err
	}
	workspace := filepath.Join(tree, "workspace")
	if err := errors.Join(os.Mkdir(workspace, 0o755), os.Chown(workspace, toolUID, toolUID)); err != nil {
		return fmt.Errorf("making the workspace: %w", err)
	}
	for _, pattern := range []string{
		"var/lib/apt/lists/*", "var/cache/apt/*", "var/cache/debconf/*-old", "var/cache/ldconfig/*", "var/log/*",
		"var/lib/dpkg/*-old", "etc/*-", "usr/share/man/*", "usr/share/info/*", "usr/share/locale/*", "usr/share/doc/*/*",
		"usr/share/doc-base/*", "dev/*", "proc/*", "sys/*", "run/*", "tmp/*", "etc/hostname", "etc/resolv.conf",
		"var/lib/systemd/*", "etc/machine-id", "usr/lib/python3*/__pycache__", "usr/lib/python3*/*/__pycache__",
	} {
		if err := removeMatches(filepath.Join(tree, pattern)); err != nil {
			return err
		}
	}
	return nil
}

func removeMatches(pattern string) error {
	matches, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, m := range matches {
		if filepath.Base(m) == "copyright" {
			continue
		}
		if err := os.RemoveAll(m); err != nil {
			return fmt.Errorf("cleaning the image: %w", err)
		}
	}
	return nil
}

// run executes a command, inside root unless that is empty, in a mount namespace
// of its own: whatever it mounts is gone when it ends, even by a signal.
func run(root, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	if root != "" {
		cmd = exec.Command("chroot", append([]string{root, name}, args...)...)
	}
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		text := output.String()
		return fmt.Errorf("%s: %w\n%s", name, err, text[max(0, len(text)-2000):])
	}
	return nil
}
