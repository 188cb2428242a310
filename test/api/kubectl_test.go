package api_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
)

// A category that is the plural of a kind makes kubectl take the one for the other.
func TestACategoryIsNoPluralOfAKind(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "config", "crd", "toolcall.dev_*.yaml"))
	if err != nil || len(files) < 4 {
		t.Fatalf("found %d kinds: %v", len(files), err)
	}
	for _, file := range append(files, filepath.Join(root, "config", "crd", "tools.yaml")) {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(raw, crd); err != nil {
			t.Fatal(err)
		}
		if got := crd.Spec.Names.Categories; !slices.Equal(got, []string{"toolcall-dev"}) {
			t.Errorf("%s is in the categories %v", crd.Spec.Names.Kind, got)
		}
	}
}

func TestDeletingAllCallsDeletesNothingElse(t *testing.T) {
	s := newSpace(t)
	policy := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	skill := &v1alpha1.Skill{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "skill"}}
	s.create(newCall(s.namespace, "one"), newCall(s.namespace, "two"), newEnvironment(s.namespace, "env"), skill, policy)

	if said := s.run("get", "toolcalls", "one", "--output=name"); said != "toolcall.toolcall.dev/one" {
		t.Errorf("kubectl get toolcalls one: %s", said)
	}
	names := func() []string {
		return strings.Fields(s.run("get", "toolcall-dev", "--output=name"))
	}
	for _, want := range []string{"toolcall.toolcall.dev/one", "executionenvironment.toolcall.dev/env", "skill.toolcall.dev/skill", "executionpolicy.toolcall.dev/" + s.namespace} {
		if !slices.Contains(names(), want) {
			t.Errorf("kubectl get toolcall-dev lacks %s: %v", want, names())
		}
	}
	if said := s.run("get", "all", "--output=name"); strings.Contains(said, "toolcall") {
		t.Errorf("kubectl get all shows %s", said)
	}
	s.run("delete", "toolcalls", "--all")
	left := names()
	if slices.ContainsFunc(left, func(name string) bool { return strings.HasPrefix(name, "toolcall.") }) {
		t.Errorf("calls are left: %v", left)
	}
	for _, want := range []string{"executionenvironment.toolcall.dev/env", "skill.toolcall.dev/skill", "executionpolicy.toolcall.dev/" + s.namespace} {
		if !slices.Contains(left, want) {
			t.Errorf("kubectl delete toolcalls --all deleted %s", want)
		}
	}
}
