package manifests_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolcall.dev/operator/hack/release/manifests"
)

// aboutTheAccount are the admission policies that name the operator's account.
var aboutTheAccount = []string{"toolcall-operator-account", "toolcall-operator-objects", "toolcall-operator-templates"}

// An installation into another namespace binds the account that it has there.
func TestPoliciesNameTheAccountOfTheInstallation(t *testing.T) {
	t.Parallel()
	elsewhere, err := manifests.Chart(chartDir, nil, manifests.Release{Name: "r", Namespace: "elsewhere", KubeVersion: "v1.36.0"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		objects   map[string]manifests.Object
		namespace string
	}{
		"kustomization":        {kustomized(t, "default"), system},
		"overlay":              {overlay(t, "elsewhere"), "elsewhere"},
		"chart":                {chart(t, nil), system},
		"chart in a namespace": {parse(t, elsewhere), "elsewhere"},
	} {
		account := tc.objects["v1/ServiceAccount/"+tc.namespace+"/toolcall-operator"]
		if account == nil {
			t.Errorf("%s: the account isn't in namespace %s", name, tc.namespace)
		}
		for _, policy := range aboutTheAccount {
			o := tc.objects["admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy//"+policy]
			condition, _ := at(t, o, "spec", "matchConditions", 0, "expression").(string)
			if want := "['system', 'serviceaccount', '" + tc.namespace + "', 'toolcall-operator'].join(':')"; !strings.Contains(condition, want) {
				t.Errorf("%s: %s is about %q; want %s", name, policy, condition, want)
			}
		}
	}
}

// overlay installs config/default into another namespace, as config/components/operator-account says.
func overlay(t *testing.T, namespace string) map[string]manifests.Object {
	t.Helper()
	base, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for layer, lines := range map[string][]string{
		"moved":   {"namespace: " + namespace, "resources: [BASE/config/default]"},
		"install": {"resources: [../moved]", "components: [BASE/config/components/operator-account]"},
	} {
		folder := filepath.Join(dir, layer)
		relative, err := filepath.Rel(folder, base)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(strings.Join(lines, "\n"), "BASE", relative)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := manifests.Kustomize(filepath.Join(dir, "install"))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, raw)
}
