package manifests_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"

	"toolcall.dev/operator/hack/release/manifests"
)

// A field that a kind doesn't have is a mistake that an API server may only warn of. Kinds that clients don't know are those that test/api
// installs.
func TestObjectsHaveTheFieldsOfTheirKinds(t *testing.T) {
	t.Parallel()
	rendered := map[string][]byte{}
	for _, config := range []string{"default", "namespaced", "store", "console", "mcp"} {
		raw, err := manifests.Kustomize(root + "config/" + config)
		if err != nil {
			t.Fatal(err)
		}
		rendered[config] = raw
	}
	on := values{"enabled": true}
	raw, err := manifests.Chart(chartDir, values{"console": on, "mcp": on, "networkPolicy": on, "namespaces": []any{"team"}},
		manifests.Release{Name: "r", Namespace: system, KubeVersion: "v1.37.0"})
	if err != nil {
		t.Fatal(err)
	}
	rendered["the chart"] = raw
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for from, raw := range rendered {
		known := 0
		for _, doc := range manifests.Split(raw) {
			_, kind, err := strict.Decode(doc, nil, nil)
			switch {
			case runtime.IsMissingKind(err) || runtime.IsNotRegisteredError(err):
			case err != nil:
				t.Errorf("%s: %v: %v\n%s", from, kind, err, doc)
			default:
				known++
			}
		}
		if known < 3 {
			t.Errorf("%s: only %d objects are of known kinds", from, known)
		}
	}
}
