// Package settings reads what the user may choose about the local cluster from
// the environment and derives every path from it. It touches no file.
package settings

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"toolcall.dev/operator/hack/images/image"
)

// Names that are fixed, because one machine runs one cluster.
const (
	HostInterface = "toolcall0"
	NodeInterface = "eth0"
	NodeName      = "toolcall-node"
	CgroupRoot    = "toolcall-cluster"
	LockName      = "@toolcall-cluster"
	PlanName      = "node.json"
)

const defaultDir = "/var/lib/toolcall-cluster"

// Settings is one reading of the environment.
type Settings struct {
	Dir   string
	Cache string
	// Kubernetes is the minor version that the node runs, e.g. 1.34; empty for the newest.
	Kubernetes string
	// GVisor adds gVisor as a second runtime of the node, runsc.
	GVisor    bool
	NoFsync   bool
	NoInstall bool
	// Slow multiplies the limits of a start, from 1 to 100: for a machine whose processor is translated.
	Slow int
}

// FromEnv reads the settings; getenv is os.Getenv outside tests.
func FromEnv(getenv func(string) string) (Settings, error) {
	s := Settings{
		Dir: getenv("TOOLCALL_CLUSTER_DIR"), Cache: image.CacheDir(getenv), Kubernetes: getenv("TOOLCALL_CLUSTER_KUBERNETES"),
	}
	if s.Dir == "" {
		s.Dir = defaultDir
	}
	if !filepath.IsAbs(s.Dir) || filepath.Clean(s.Dir) == "/" {
		return s, fmt.Errorf("TOOLCALL_CLUSTER_DIR=%q: give the absolute path of a folder of its own", s.Dir)
	}
	s.Dir = filepath.Clean(s.Dir)
	return s, errors.Join(
		readBool(getenv, "TOOLCALL_CLUSTER_GVISOR", &s.GVisor),
		readBool(getenv, "TOOLCALL_CLUSTER_NO_FSYNC", &s.NoFsync),
		readBool(getenv, "TOOLCALL_NO_INSTALL", &s.NoInstall),
		readSlow(getenv, &s.Slow),
	)
}

const (
	slowName = "TOOLCALL_CLUSTER_SLOW"
	slowest  = 100
)

func readSlow(getenv func(string) string, to *int) error {
	*to = 1
	text := getenv(slowName)
	if text == "" {
		return nil
	}
	v, err := strconv.Atoi(text)
	if err != nil || v < 1 || v > slowest {
		return fmt.Errorf("%s=%q: give a whole number from 1 to %d", slowName, text, slowest)
	}
	*to = v
	return nil
}

func readBool(getenv func(string) string, name string, to *bool) error {
	text := getenv(name)
	if text == "" {
		return nil
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("%s=%q: give 1 or 0", name, text)
	}
	*to = v
	return nil
}

// Path joins a path below the cluster's state folder.
func (s Settings) Path(elem ...string) string {
	return filepath.Join(append([]string{s.Dir}, elem...)...)
}

// Kubeconfig is the administrator's kubeconfig.
func (s Settings) Kubeconfig() string { return s.Path("kubeconfig") }

// ControlSocket is where the node's supervisor answers.
func (s Settings) ControlSocket() string { return s.Path("control.sock") }

// PlanFile is what the node's supervisor reads at its start.
func (s Settings) PlanFile() string { return s.Path(PlanName) }

// SearchPath is the node's PATH.
func (s Settings) SearchPath() string {
	var dirs []string
	for _, module := range []string{"containerd", "runc", "gvisor", "kubernetes", "etcd"} {
		dirs = append(dirs, s.Path("bin", module))
	}
	return strings.Join(dirs, ":") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}

// Log is the log file of one component.
func (s Settings) Log(component string) string { return s.Path("logs", component+".log") }
