package blueprint

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

func compose(t *testing.T, in Input) Blueprint {
	t.Helper()
	b, err := Compose(in)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAnOlderKubeletGetsNoFieldThatItRefuses(t *testing.T) {
	t.Parallel()
	in := input("/state")
	in.Settings.Kubernetes = "1.34"
	if text := compose(t, in).Files["kubelet.yaml"]; strings.Contains(text, "imagePullCredentialsVerificationPolicy") {
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
		if got := strings.Contains(old.Files[c.file], c.line); got != c.onOld {
			t.Errorf("old machine: %s has %q: %t", c.file, c.line, got)
		}
		if got := strings.Contains(modern.Files[c.file], c.line); got != c.onNew {
			t.Errorf("modern machine: %s has %q: %t", c.file, c.line, got)
		}
	}
}

func TestNetworkConfigurationIsJSON(t *testing.T) {
	t.Parallel()
	text := compose(t, input("/state")).Files[filepath.Join("cni", "10-toolcall.conflist")]
	if !json.Valid([]byte(text)) {
		t.Fatalf("not JSON:\n%s", text)
	}
}

func TestComponentsComeAfterWhatTheyNeed(t *testing.T) {
	t.Parallel()
	var seen []string
	for _, c := range compose(t, input("/state")).Plan.Components {
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

func TestFingerprintTellsClustersApart(t *testing.T) {
	t.Parallel()
	print := func(change func(*Input)) string {
		in := input("/state")
		change(&in)
		text, err := compose(t, in).Fingerprint()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	base := print(func(*Input) {})
	if base != print(func(*Input) {}) {
		t.Fatal("the same input gave two fingerprints")
	}
	changes := map[string]func(*Input){
		"audit":    func(in *Input) { in.Settings.Audit = true },
		"fsync":    func(in *Input) { in.Settings.NoFsync = true },
		"subnet":   func(in *Input) { in.Subnet = netip.MustParsePrefix("10.213.1.0/30") },
		"programs": func(in *Input) { in.Programs[0].Dir = "/cache/etcd-2" },
		"machine":  func(in *Input) { in.Facts.CgroupV2 = false },
	}
	for what, change := range changes {
		if print(change) == base {
			t.Errorf("the fingerprint ignores %s", what)
		}
	}
}

func TestPrivateKeysAreReadableByTheirOwnerOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, sub := range []string{"pki", "kubeconfigs"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteCredentials(input(dir)); err != nil {
		t.Fatal(err)
	}
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
