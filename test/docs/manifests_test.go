package docs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// manifest is the part of an object that says what it is.
type manifest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

// Every object that a page shows would be taken by the API server. Fragments only have to be YAML.
func TestManifests(t *testing.T) {
	needCluster(t)
	// kubectl takes a folder at once, and names the files of objects that are refused.
	folders := map[string]string{"apply": t.TempDir(), "create": t.TempDir()}
	var namespaces []string
	for _, b := range manifestBlocks(t) {
		for i, raw := range documents(t, b) {
			m, ok := object(t, b, raw)
			if !ok {
				continue
			}
			verb := "apply"
			if m.Name == "" {
				verb = "create"
			}
			namespaces = append(namespaces, m.Namespace)
			name := fmt.Sprintf("%s:%d-%d.json", strings.ReplaceAll(b.page, "/", "_"), b.line, i)
			if err := os.WriteFile(filepath.Join(folders[verb], name), raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	withNamespaces(t, namespaces)
	for verb, folder := range folders {
		tryManifests(t, verb, folder)
	}
}

// manifestBlocks are the blocks of YAML of all pages.
func manifestBlocks(t *testing.T) []block {
	t.Helper()
	var all []block
	for _, page := range pages(t) {
		found, _ := blocks(page, read(t, page))
		all = append(all, slices.DeleteFunc(found, func(b block) bool { return b.language != "yaml" && b.language != "yml" })...)
	}
	return all
}

// withNamespaces makes those that aren't there, until the end of the test.
func withNamespaces(t *testing.T, wanted []string) {
	t.Helper()
	slices.Sort(wanted)
	there := append(names(t, "namespaces"), "")
	missing := slices.DeleteFunc(slices.Compact(wanted), func(name string) bool { return slices.Contains(there, name) })
	if len(missing) == 0 {
		return
	}
	t.Cleanup(func() {
		kubectl(append([]string{"delete", "namespace", "--ignore-not-found", "--timeout=110s"}, missing...)...).must(t)
	})
	var manifests strings.Builder
	for _, name := range missing {
		fmt.Fprintf(&manifests, "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", name)
	}
	kubectl("create", "-f", "-").with(manifests.String()).must(t)
}

// tryManifests asks the API server whether it takes the objects of a folder.
func tryManifests(t *testing.T, verb, folder string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) == 0 {
		t.Errorf("no page has an object for kubectl %s", verb)
		return
	}
	c := kubectl(verb, "--dry-run=server", "-o", "name", "-f", folder)
	c.limit = 5 * time.Minute
	out, errOut, err := c.run(t)
	if taken := strings.Count(out, "\n"); err != nil || taken != len(entries) {
		t.Errorf("kubectl %s: the API server takes %d of %d objects: %v\n%s", verb, taken, len(entries), err, errOut)
	}
}

func documents(t *testing.T, b block) []json.RawMessage {
	t.Helper()
	var all []json.RawMessage
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(b.text), 4096)
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Errorf("%s:%d isn't YAML: %v", b.page, b.line, err)
			return all
		}
		all = append(all, raw)
	}
}

// served says whether the cluster knows a group's kinds: Kubernetes' own, of which x-k8s.io isn't, or the project's.
func served(group string) bool {
	return !strings.Contains(group, ".") || group == "toolcall.dev" ||
		strings.HasSuffix(group, ".k8s.io") && !strings.HasSuffix(group, ".x-k8s.io")
}

func TestServed(t *testing.T) {
	t.Parallel()
	for group, want := range map[string]bool{
		"v1": true, "apps": true, "toolcall.dev": true, "rbac.authorization.k8s.io": true, "kueue.x-k8s.io": false, "monitoring.coreos.com": false,
	} {
		if served(group) != want {
			t.Errorf("%s is served: %t", group, !want)
		}
	}
}

// object is a document of a page that is a whole object of a kind that the cluster knows.
func object(t *testing.T, b block, raw json.RawMessage) (m manifest, ok bool) {
	t.Helper()
	if json.Unmarshal(raw, &m) != nil || m.APIVersion == "" || m.Kind == "" {
		return m, false
	}
	group, _, _ := strings.Cut(m.APIVersion, "/")
	if !served(group) {
		t.Logf("%s:%d: %s of %s isn't checked: the kind isn't Kubernetes' own", b.page, b.line, m.Kind, m.APIVersion)
		return m, false
	}
	return m, true
}
