package blueprint

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"toolcall.dev/operator/hack/cluster/internal/machine"
	"toolcall.dev/operator/hack/cluster/internal/programs"
	"toolcall.dev/operator/hack/cluster/internal/settings"
)

func input(dir string) Input {
	return Input{
		Settings: settings.Settings{Dir: dir},
		Facts:    machine.Facts{CgroupV2: true, SysResource: true},
		Subnet:   netip.MustParsePrefix("10.213.0.0/30"),
		Programs: []programs.Resolved{{Module: programs.Module{Name: "etcd"}, Dir: "/cache/etcd-1"}},
	}
}

func compose(t *testing.T, in Input) map[string]string {
	t.Helper()
	files, err := Compose(in)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestAnOlderKubeletGetsNoFieldThatItRefuses(t *testing.T) {
	t.Parallel()
	in := input("/state")
	in.Settings.Kubernetes = "1.34"
	if text := compose(t, in)["kubelet.yaml"]; strings.Contains(text, "imagePullCredentialsVerificationPolicy") {
		t.Error(text)
	}
}

func TestConfigurationFollowsTheMachine(t *testing.T) {
	t.Parallel()
	in := input("/state")
	modern := compose(t, in)
	in.Facts = machine.Facts{}
	old := compose(t, in)
	cases := []struct {
		file, line   string
		onOld, onNew bool
	}{
		{"kubelet.yaml", "failCgroupV1: false", true, false},
		{"kubelet.yaml", "oomScoreAdj: 0", true, false},
		{"kubelet.yaml", "cgroupRoot: /toolcall-cluster", true, true},
		{"kubelet.yaml", "imagePullCredentialsVerificationPolicy: NeverVerify", true, true},
		{"containerd.toml", "restrict_oom_score_adj = true", true, false},
		{"containerd.toml", "restrict_oom_score_adj = false", false, true},
		{"containerd.toml", `sandbox = "toolcall.dev/pause:v1"`, true, true},
		{"Corefile", "bind 10.213.0.2", true, true},
	}
	for _, c := range cases {
		if got := strings.Contains(old[c.file], c.line); got != c.onOld {
			t.Errorf("old machine: %s has %q: %t", c.file, c.line, got)
		}
		if got := strings.Contains(modern[c.file], c.line); got != c.onNew {
			t.Errorf("modern machine: %s has %q: %t", c.file, c.line, got)
		}
	}
}

func TestNetworkConfigurationIsJSON(t *testing.T) {
	t.Parallel()
	text := compose(t, input("/state"))["cni/cni.conflist"]
	if !json.Valid([]byte(text)) {
		t.Fatalf("not JSON:\n%s", text)
	}
}

func TestComponentsComeAfterWhatTheyNeed(t *testing.T) {
	t.Parallel()
	var seen []string
	for _, c := range plan(input("/state")).Components {
		for _, needed := range c.After {
			if !slices.Contains(seen, needed) {
				t.Errorf("%s comes before %s", c.Name, needed)
			}
		}
		if c.Ready == "" {
			t.Errorf("nobody can tell when %s is ready", c.Name)
		}
		seen = append(seen, c.Name)
	}
}

func TestTheFilesTellClustersApart(t *testing.T) {
	t.Parallel()
	composed := func(change func(*Input)) map[string]string {
		in := input("/state")
		change(&in)
		return compose(t, in)
	}
	base := composed(func(*Input) {})
	if !maps.Equal(base, composed(func(*Input) {})) {
		t.Fatal("the same input gave other files")
	}
	changes := map[string]func(*Input){
		"fsync":    func(in *Input) { in.Settings.NoFsync = true },
		"subnet":   func(in *Input) { in.Subnet = netip.MustParsePrefix("10.213.1.0/30") },
		"programs": func(in *Input) { in.Programs[0].Dir = "/cache/etcd-2" },
		"machine":  func(in *Input) { in.Facts.CgroupV2 = false },
	}
	for what, change := range changes {
		if maps.Equal(composed(change), base) {
			t.Errorf("the files ignore %s", what)
		}
	}
}

// credentials writes those of a cluster, and gives its state folder.
func credentials(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"pki", "kubeconfigs"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteCredentials(input(dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPrivateKeysAreReadableByTheirOwnerOnly(t *testing.T) {
	t.Parallel()
	dir := credentials(t)
	secret, err := filepath.Glob(filepath.Join(dir, "pki", "*.key"))
	if err != nil || len(secret) != 7 {
		t.Fatalf("found %d keys, %v", len(secret), err)
	}
	configs, err := filepath.Glob(filepath.Join(dir, "kubeconfigs", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(append(secret, configs...), filepath.Join(dir, "kubeconfig")) {
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
}

func TestCertificatesHoldForWhoTheyAreFor(t *testing.T) {
	t.Parallel()
	dir := credentials(t)
	authorities, err := cert.NewPool(filepath.Join(dir, "pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for host, name := range map[string]string{"10.213.0.2": "apiserver", "kubernetes.default.svc": "apiserver", "10.96.0.1": "apiserver", "toolcall-node": "kubelet"} {
		file := filepath.Join(dir, "pki", name)
		pair, err := tls.LoadX509KeyPair(file+".crt", file+".key")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: authorities, DNSName: host}); err != nil {
			t.Errorf("%s for %s: %v", name, host, err)
		}
	}
	if keys, err := keyutil.PublicKeysFromFile(filepath.Join(dir, "pki", "sa.key")); err != nil || len(keys) != 1 {
		t.Errorf("the API server reads %d keys that verify tokens: %v", len(keys), err)
	}
}
