package plugin

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// krewPlugin is a manifest of krew, v1alpha2, with the fields that krew validates.
type krewPlugin struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string         `json:"version"`
		Homepage         string         `json:"homepage"`
		ShortDescription string         `json:"shortDescription"`
		Description      string         `json:"description"`
		Caveats          string         `json:"caveats"`
		Platforms        []krewPlatform `json:"platforms"`
	} `json:"spec"`
}

type krewPlatform struct {
	URI      string `json:"uri"`
	SHA256   string `json:"sha256"`
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	Files []struct {
		From string `json:"from"`
		To   string `json:"to"`
	} `json:"files"`
	Bin string `json:"bin"`
}

func TestKrewManifest(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../config/krew/toolcall.yaml")
	if err != nil {
		t.Fatal(err)
	}
	filled := strings.NewReplacer("@URL@", "https://example.com/v1.2.3", "@VERSION@", "v1.2.3").Replace(string(raw))
	var plugin krewPlugin
	if err := yaml.UnmarshalStrict([]byte(filled), &plugin); err != nil {
		t.Fatal(err)
	}
	spec := &plugin.Spec
	if plugin.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || plugin.Kind != "Plugin" || plugin.Metadata.Name != "toolcall" {
		t.Errorf("it is a %s %s named %s", plugin.APIVersion, plugin.Kind, plugin.Metadata.Name)
	}
	if spec.Version != "v1.2.3" || spec.ShortDescription == "" || len(spec.ShortDescription) > 50 || spec.Description == "" || spec.Homepage != "https://toolcall.dev/operator" {
		t.Errorf("version %q, homepage %q, short description of %d characters", spec.Version, spec.Homepage, len(spec.ShortDescription))
	}
	seen := map[string]bool{}
	for i := range spec.Platforms {
		seen[checkPlatform(t, &spec.Platforms[i])] = true
	}
	if len(seen) != len(spec.Platforms) || !seen["linux_amd64"] || !seen["darwin_arm64"] {
		t.Errorf("platforms are %v", seen)
	}
}

func checkPlatform(t *testing.T, p *krewPlatform) string {
	t.Helper()
	system, machine := p.Selector.MatchLabels["os"], p.Selector.MatchLabels["arch"]
	name := system + "_" + machine
	if system == "" || machine == "" || len(p.Selector.MatchLabels) != 2 {
		t.Errorf("%v selects no platform", p.Selector.MatchLabels)
	}
	if want := "https://example.com/v1.2.3/kubectl-toolcall_v1.2.3_" + name + ".tar.gz"; p.URI != want {
		t.Errorf("%s: uri is %s", name, p.URI)
	}
	if !regexp.MustCompile(`^@SHA256_[A-Z0-9_]+@$`).MatchString(p.SHA256) || p.SHA256 != "@SHA256_"+strings.ToUpper(name)+"@" {
		t.Errorf("%s: a release doesn't fill in %s", name, p.SHA256)
	}
	want := "kubectl-toolcall"
	if system == "windows" {
		want += ".exe"
	}
	if p.Bin != want || len(p.Files) != 1 || p.Files[0].To != "." {
		t.Errorf("%s: bin %s, files %v", name, p.Bin, p.Files)
	}
	return name
}
