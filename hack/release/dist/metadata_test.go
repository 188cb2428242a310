package dist

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// What indexes show of the chart: Artifact Hub's, Helm's own search.
func TestTheChartHasWhatAnIndexShows(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../../charts/toolcall-operator/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var chart struct {
		Description, Home string
		Keywords, Sources []string
		Maintainers       []struct{ Name, URL string }
		Annotations       map[string]string
	}
	if err := yaml.Unmarshal(raw, &chart); err != nil {
		t.Fatal(err)
	}
	if chart.Description == "" || len(chart.Keywords) == 0 || len(chart.Maintainers) != 1 || chart.Maintainers[0].URL != homepage {
		t.Errorf("%+v", chart)
	}
	if chart.Home != homepage || len(chart.Sources) != 1 || chart.Sources[0] != homepage+"/operator" {
		t.Errorf("home %s, sources %v", chart.Home, chart.Sources)
	}
	if chart.Annotations["artifacthub.io/license"] != "Apache-2.0" {
		t.Errorf("annotations %v", chart.Annotations)
	}
	var links []struct{ Name, URL string }
	if err := yaml.Unmarshal([]byte(chart.Annotations["artifacthub.io/links"]), &links); err != nil || len(links) == 0 {
		t.Errorf("links %v, %v", links, err)
	}
}

// Every image that a release makes says what it is, and has the addresses and the licence that a release has by default.
func TestEachImageHasWhatARegistryShows(t *testing.T) {
	t.Parallel()
	r := &release{Options: &Options{Source: "../../..", Version: "v9.8.7", Commit: "c", SourceURL: "s", DocsURL: "d", Licenses: "l"}}
	programs, err := r.programs()
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range programs {
		labels := r.annotations(program)
		for _, name := range []string{"title", "description", "version", "revision", "url", "source", "documentation", "licenses"} {
			if labels["org.opencontainers.image."+name] == "" {
				t.Errorf("%s: no %s in %v", program, name, labels)
			}
		}
	}
	script, err := os.ReadFile("../../release.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"${SOURCE_URL:-" + homepage + "/operator}", "${LICENSES:-Apache-2.0}"} {
		if !strings.Contains(string(script), part) {
			t.Errorf("hack/release.sh hasn't %s", part)
		}
	}
}
