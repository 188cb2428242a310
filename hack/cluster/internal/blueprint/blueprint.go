// Package blueprint decides what runs on the node and with which configuration.
// It is pure: the same input gives the same files, so that those of a running cluster
// tell it from the one that would be started now. Only WriteCredentials writes something.
package blueprint

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"net/netip"
	"text/template"

	"toolcall.dev/operator/hack/cluster/internal/machine"
	"toolcall.dev/operator/hack/cluster/internal/programs"
	"toolcall.dev/operator/hack/cluster/internal/settings"
	"toolcall.dev/operator/hack/cluster/internal/supervisor"
)

// Fixed networks and names; they exist inside the node only.
const (
	PauseTag          = "toolcall.dev/pause:v1"
	ClusterDomain     = "cluster.local"
	KubeletClientUser = "kube-apiserver-kubelet-client"
	CoreDNSUser       = "system:coredns"
	ProvisionerUser   = "system:volume-provisioner"
	ProvisionerName   = "toolcall.dev/local-volumes"
	APIPort           = 6443
)

var (
	podCIDR     = netip.MustParsePrefix("10.244.0.0/16")
	serviceCIDR = netip.MustParsePrefix("10.96.0.0/16")
	apiService  = netip.MustParseAddr("10.96.0.1")
	dnsService  = netip.MustParseAddr("10.96.0.10")
)

//go:embed templates
var templates embed.FS

// Input is everything that the plan depends on.
type Input struct {
	Settings settings.Settings
	Facts    machine.Facts
	Subnet   netip.Prefix
	Programs []programs.Resolved
}

// NodeNetworks are used inside the node; the link to it must lie elsewhere.
func NodeNetworks() []netip.Prefix { return []netip.Prefix{podCIDR, serviceCIDR} }

// HostIP is the machine's end of the link to the node.
func (in Input) HostIP() netip.Addr { return in.Subnet.Masked().Addr().Next() }

// NodeIP is the node's end of the link, where the API server is reached.
func (in Input) NodeIP() netip.Addr { return in.HostIP().Next() }

// Server is the API server's address.
func (in Input) Server() string {
	return "https://" + netip.AddrPortFrom(in.NodeIP(), APIPort).String()
}

// Compose makes the files that a node is started from: the plan of its supervisor, and its components' configuration.
func Compose(in Input) (map[string]string, error) {
	files, err := render(in)
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(plan(in), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the node's plan: %w", err)
	}
	files[settings.PlanName] = string(text)
	return files, nil
}

func plan(in Input) supervisor.Plan {
	s := in.Settings
	p := supervisor.Plan{
		Hostname:      settings.NodeName,
		StateDir:      s.Dir,
		Hide:          []string{"/run", "/var/lib", "/var/log"},
		Interface:     settings.NodeInterface,
		Address:       netip.PrefixFrom(in.NodeIP(), in.Subnet.Bits()).String(),
		Routes:        []string{serviceCIDR.String()},
		Pods:          podCIDR.String(),
		ControlSocket: s.ControlSocket(),
		LogDir:        s.Path("logs"),
		Env: []string{
			"HOME=" + s.Path("home"),
			"TMPDIR=" + s.Path("tmp"),
			"PATH=" + s.SearchPath(),
		},
		Components: components(in),
	}
	for _, r := range in.Programs {
		p.Binds = append(p.Binds, supervisor.Bind{From: r.Dir, To: s.Path("bin", r.Name)})
	}
	p.Binds = append(p.Binds, supervisor.Bind{From: s.Path("pod-logs"), To: "/var/log/pods"})
	return p
}

// Values are the names that the templates use.
type values struct {
	Dir, NodeIP, NodeName, CgroupRoot string
	PauseTag, PodCIDR, DNSService     string
	ClusterDomain                     string
	KubeletClientUser, CoreDNSUser    string
	ProvisionerUser, ProvisionerName  string
	CgroupV2, SysResource             bool
	// Newest says that the node runs the newest Kubernetes, not an older one that was asked for.
	Newest bool
	GVisor bool
}

func render(in Input) (map[string]string, error) {
	v := values{
		Dir: in.Settings.Dir, NodeIP: in.NodeIP().String(), NodeName: settings.NodeName, CgroupRoot: settings.CgroupRoot,
		PauseTag: PauseTag, PodCIDR: podCIDR.String(), DNSService: dnsService.String(), ClusterDomain: ClusterDomain,
		KubeletClientUser: KubeletClientUser, CoreDNSUser: CoreDNSUser,
		ProvisionerUser: ProvisionerUser, ProvisionerName: ProvisionerName,
		CgroupV2: in.Facts.CgroupV2, SysResource: in.Facts.SysResource,
		Newest: in.Settings.Kubernetes == "", GVisor: in.Settings.GVisor,
	}
	all, err := template.ParseFS(templates, "templates/*")
	if err != nil {
		return nil, fmt.Errorf("reading the configuration templates: %w", err)
	}
	files := map[string]string{"resolv.conf": "options ndots:1\n"}
	for _, t := range all.Templates() {
		var text bytes.Buffer
		if err := t.Execute(&text, v); err != nil {
			return nil, fmt.Errorf("rendering %s: %w", t.Name(), err)
		}
		name := t.Name()
		if name == "cni.conflist" {
			name = "cni/" + name // containerd takes the first file of the folder.
		}
		files[name] = text.String()
	}
	return files, nil
}
