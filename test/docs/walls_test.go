package docs

import (
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

// decided is what the operator decides about a call of a sample, from the sample's own files.
func decided(t *testing.T, name string, files ...string) (*decide.Decision, error) {
	t.Helper()
	s := &decide.Snapshot{Requester: decide.Requester{Vouched: true}, Access: decide.Access{Allowed: true}}
	policies, environments := map[string]*v1alpha1.ExecutionPolicy{}, map[string]*v1alpha1.ExecutionEnvironment{}
	for _, file := range files {
		for document := range strings.SplitSeq(read(t, "config/samples/"+file), "\n---\n") {
			switch kind := decodeAs(t, document, &metav1.PartialObjectMetadata{}); {
			case kind.Kind == "ExecutionPolicy":
				policies[kind.Name] = decodeAs(t, document, &v1alpha1.ExecutionPolicy{})
			case kind.Kind == "ExecutionEnvironment":
				environments[kind.Name] = decodeAs(t, document, &v1alpha1.ExecutionEnvironment{})
			case kind.Kind == "ToolCall" && kind.Name == name:
				s.Call = decodeAs(t, document, &v1alpha1.ToolCall{})
			}
		}
	}
	s.Call.Spec.RequestedBy = &v1alpha1.Requester{Username: "agent"}
	if ref := s.Call.Spec.EnvironmentRef; ref != nil {
		s.Named = environments[ref.Name]
	}
	for _, env := range environments {
		if env.Annotations[v1alpha1.AnnotationDefaultEnvironment] == "true" {
			s.Defaults = append(s.Defaults, *env)
		}
	}
	s.Policies.Named = policies[s.Effective().Spec.PolicyName()]
	return decide.Decide(s)
}

func decodeAs[T any](t *testing.T, document string, into T) T {
	t.Helper()
	if err := yaml.Unmarshal([]byte(document), into); err != nil {
		t.Fatal(err)
	}
	return into
}

// What the samples say is refused by the kernel passes the guards, with rules that refuse it.
func TestSamplesWithWalls(t *testing.T) {
	t.Parallel()
	demo := []string{"01-policy.yaml", "02-environment.yaml", "10-calls.yaml"}
	agent := []string{"coding-agent.yaml"}
	for name, files := range map[string][]string{"walls": demo, "works": agent, "starts-curl": agent} {
		d, err := decided(t, name, files...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := d.Rules
		if r == nil || r.Programs == nil || !slices.Contains(r.Programs.Allowed, "python3") || slices.Contains(r.Programs.Allowed, "curl") {
			t.Errorf("%s: it isn't held to a list with python3 and without curl: %+v", name, r)
			continue
		}
		if !slices.Equal(r.WritePaths, []string{"/workspace", "/tmp"}) || r.Policy == "" {
			t.Errorf("%s: it isn't held to paths: %+v", name, r)
		}
	}
	var refusal *decide.Refusal
	if _, err := decided(t, "names-curl", agent...); !errors.As(err, &refusal) || refusal.Reason != v1alpha1.ReasonShellCommandNotAllowed {
		t.Errorf("a line that names curl is decided as %v", err)
	}
}
