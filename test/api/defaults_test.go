package api_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/jobspec"
)

// specOf is what the API server made of an object's spec.
func (s *space) specOf(kind, name, spec string) map[string]any {
	s.t.Helper()
	object := &unstructured.Unstructured{}
	text := `{"apiVersion":"toolcall.dev/v1alpha1","kind":"` + kind + `","metadata":{}` + spec + `}`
	if err := json.Unmarshal([]byte(text), object); err != nil {
		s.t.Fatal(err)
	}
	object.SetName(name)
	if kind != "ExecutionPolicy" {
		object.SetNamespace(s.namespace)
	}
	if err := s.admin.Create(s.t.Context(), object, client.DryRunAll); err != nil {
		s.t.Fatal(err)
	}
	made, _ := object.Object["spec"].(map[string]any)
	return made
}

// defaults are those of a policy; internal/guards holds the same file to what it does without them.
func defaults(t *testing.T) map[string]any {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "internal", "guards", "testdata", "defaults.json"))
	if err != nil {
		t.Fatal(err)
	}
	return fromJSON(t, string(raw))
}

// fromJSON reads numbers as the client does.
func fromJSON(t *testing.T, text string) map[string]any {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(`{"apiVersion":"v1","kind":"x","value":`+text+`}`), object); err != nil {
		t.Fatal(err)
	}
	value, _ := object.Object["value"].(map[string]any)
	return value
}

func TestAPolicyShowsItsDefaults(t *testing.T) {
	s := newSpace(t)
	want := defaults(t)
	for name, spec := range map[string]string{
		"nothing": ``, "an empty spec": `,"spec":{}`, "empty parts": `,"spec":{"shell":{},"binaries":{},"arguments":{},"timeouts":{},"code":{},"output":{}}`,
	} {
		if diff := cmp.Diff(want, s.specOf("ExecutionPolicy", "p-"+s.namespace, spec)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	host := s.specOf("ExecutionPolicy", "p-"+s.namespace, `,"spec":{"network":{"allowed":[{"host":"a.test"}]}}`)["network"]
	if diff := cmp.Diff(fromJSON(t, `{"allowInCluster":false,"udp":false,"allowed":[{"host":"a.test","ports":[443]}]}`), host); diff != "" {
		t.Errorf("a host:\n%s", diff)
	}
	// What is set stays: an empty list and a false aren't unset.
	set := `{"access":"Open","shell":{"enabled":true},"envBlocklist":[],"protectedEnv":[],"code":{"enabled":false,"languages":[],"deniedModules":[]}}`
	got := s.specOf("ExecutionPolicy", "p-"+s.namespace, `,"spec":`+set)
	for path, value := range map[string]any{
		"access": "Open", "shell.enabled": true, "shell.commands": "Unrestricted", "envBlocklist": []any{}, "protectedEnv": []any{},
		"code.enabled": false, "code.languages": []any{}, "code.deniedModules": []any{},
	} {
		if have, _, _ := unstructured.NestedFieldNoCopy(got, strings.Split(path, ".")...); !cmp.Equal(have, value) {
			t.Errorf("%s is %v; want %v", path, have, value)
		}
	}
}

func TestAnEnvironmentShowsItsDefaults(t *testing.T) {
	s := newSpace(t)
	want := map[string]any{
		"image": "i", "inheritEnv": string(v1alpha1.InheritImage), "shell": []any{"bash", "-c"}, "suspend": false,
		"startTimeoutSeconds": int64(decide.DefaultStartTimeoutSeconds), "ttlSecondsAfterFinished": int64(3600),
		"jobTTLSecondsAfterFinished": int64(jobspec.DefaultJobTTLSeconds),
	}
	if diff := cmp.Diff(want, s.specOf("ExecutionEnvironment", "e", `,"spec":{"image":"i"}`)); diff != "" {
		t.Error(diff)
	}
}

// A client that reads a policy into a type and writes it back changes nothing.
func TestDefaultsSurviveARoundTrip(t *testing.T) {
	s := newSpace(t)
	policy := &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "round-" + s.namespace}}
	s.create(policy)
	generation := policy.Generation
	if err := s.admin.Update(t.Context(), policy); err != nil || policy.Generation != generation {
		t.Errorf("generation %d became %d: %v", generation, policy.Generation, err)
	}
	raw, err := json.Marshal(policy.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(defaults(t), fromJSON(t, string(raw))); diff != "" {
		t.Error(diff)
	}
}
