// Package programs builds the programs of a node from their Go modules into a
// cache: upstream ones, unmodified, and the provisioner of its volumes. A program's folder in the cache is named after
// everything that decides its contents, so what is there never needs a rebuild.
package programs

import (
	"fmt"
	"slices"
	"strings"
)

// Module is one build module below cluster/modules. It has the version of the
// upstream module that its programs are, or are made from.
type Module struct {
	Name string
	// Minor is the minor version, e.g. 1.34, of a module that exists in several; empty for the node's own.
	Minor    string
	Upstream string
	Tags     string
	CGO      bool
	Static   bool
	Stamp    func(version string) []string
	Programs []Program
}

// Program is one executable of a module.
type Program struct {
	Name    string
	Package string
}

// folder is the module's name below cluster/modules and in the cache.
func (m Module) folder() string {
	if m.Minor == "" {
		return m.Name
	}
	return m.Name + "-" + m.Minor
}

// Catalogue lists what a node runs; what the API server's tests need comes first. The version of Kubernetes is a minor
// one, e.g. 1.34, or empty for the newest. GVisor adds a second runtime.
func Catalogue(version string, gVisor bool) ([]Module, error) {
	if version != "" && !slices.Contains(olderNodes, version) {
		return nil, fmt.Errorf("there is no node of version %q: choose one of %s, or leave the version out for the newest",
			version, strings.Join(olderNodes, ", "))
	}
	node := kubernetes
	node.Minor = version
	modules := []Module{etcd, node, containerd, runc, cni, coredns, provisioner}
	if gVisor {
		modules = append(modules, gvisor)
	}
	return modules, nil
}

// Assets are the programs that tests against a bare API server need.
var Assets = []string{"etcd", "kube-apiserver", "kubectl"}

// OlderAssets lists what tests against an older API server need: that server, and the node's own etcd and kubectl. The
// version is a minor one, e.g. 1.33.
func OlderAssets(version string) ([]Module, error) {
	if !slices.Contains(olderVersions, version) {
		return nil, fmt.Errorf("there is no API server of version %q: choose one of %s, or leave the version out for the node's",
			version, strings.Join(olderVersions, ", "))
	}
	const path = "k8s.io/kubernetes"
	older, client := kubernetes, kubernetes
	older.Minor, older.Programs = version, below(path+"/cmd/", "kube-apiserver")
	client.Programs = below(path+"/cmd/", "kubectl")
	return []Module{etcd, older, client}, nil
}

// olderVersions are the minor versions of Kubernetes that have a build module of their own. The first is the oldest one that
// the operator runs on. Those in olderNodes have all programs of a node, the others an API server only.
var (
	olderVersions = []string{"1.33", "1.34", "1.36"}
	olderNodes    = []string{"1.34"}
)

var (
	etcd = Module{
		Name: "etcd", Upstream: "go.etcd.io/etcd/server/v3",
		Programs: []Program{{"etcd", "go.etcd.io/etcd/server/v3"}},
	}
	kubernetes = Module{
		Name: "kubernetes", Upstream: "k8s.io/kubernetes", Stamp: stampKubernetes,
		Programs: below("k8s.io/kubernetes/cmd/", "kube-apiserver", "kubectl", "kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy"),
	}
	containerd = Module{
		Name: "containerd", Upstream: containerdPath, Tags: "no_btrfs no_devmapper no_zfs",
		Stamp: func(version string) []string {
			return []string{containerdPath + "/version.Version=" + version, containerdPath + "/version.Package=" + containerdPath}
		},
		Programs: below(containerdPath+"/cmd/", "containerd", "containerd-shim-runc-v2", "ctr"),
	}
	runc = Module{
		Name: "runc", Upstream: "github.com/opencontainers/runc", Tags: "seccomp netgo osusergo", CGO: true, Static: true,
		Programs: []Program{{"runc", "github.com/opencontainers/runc"}},
	}
	gvisor = Module{
		Name: "gvisor", Upstream: "gvisor.dev/gvisor",
		Programs: []Program{{"runsc", "gvisor.dev/gvisor/runsc"}, {"containerd-shim-runsc-v1", "gvisor.dev/gvisor/shim"}},
	}
	cni = Module{
		Name: "cni", Upstream: cniPath,
		Stamp: func(version string) []string {
			return []string{cniPath + "/pkg/utils/buildversion.BuildVersion=" + version}
		},
		Programs: []Program{{"ptp", cniPath + "/plugins/main/ptp"}, {"host-local", cniPath + "/plugins/ipam/host-local"}},
	}
	// coredns is a program of this project that has the plugins that the node and its tests use, and no others.
	coredns = Module{
		Name: "coredns", Upstream: "github.com/coredns/coredns",
		Programs: []Program{{"coredns", "toolcall.dev/operator/hack/cluster/modules/coredns"}},
	}
	// provisioner is a program of this project around a library.
	provisioner = Module{
		Name: "provisioner", Upstream: "sigs.k8s.io/sig-storage-lib-external-provisioner/v13",
		Programs: []Program{{"provisioner", "toolcall.dev/operator/hack/cluster/modules/provisioner"}},
	}
)

const (
	containerdPath = "github.com/containerd/containerd/v2"
	cniPath        = "github.com/containernetworking/plugins"
)

func below(prefix string, names ...string) []Program {
	var programs []Program
	for _, n := range names {
		programs = append(programs, Program{Name: n, Package: prefix + n})
	}
	return programs
}

func stampKubernetes(version string) []string {
	numbers := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	var stamps []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		stamps = append(stamps,
			fmt.Sprintf("%s.gitVersion=%s", pkg, version),
			fmt.Sprintf("%s.gitMajor=%s", pkg, numbers[0]),
			fmt.Sprintf("%s.gitMinor=%s", pkg, numbers[1]),
			fmt.Sprintf("%s.gitTreeState=clean", pkg))
	}
	return stamps
}

func (m Module) ldflags(version string) string {
	flags := []string{"-s", "-w"}
	if m.Static {
		flags = append(flags, "-linkmode", "external", "-extldflags", "-static")
	}
	if m.Stamp != nil {
		for _, s := range m.Stamp(version) {
			flags = append(flags, "-X", s)
		}
	}
	return strings.Join(flags, " ")
}
