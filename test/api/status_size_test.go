package api_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/result"
)

// worst takes most bytes of JSON for a character.
const worst = "<"

// bounded are the parts of a status that the operator cuts itself, as large as it lets them be. The schema bounds their
// characters, which says less.
func bounded() map[string]any {
	message := bounds.Text(strings.Repeat(worst, 5000), v1alpha1.MaxMessageBytes)
	var conditions []metav1.Condition
	for i := range v1alpha1.MaxConditions {
		conditions = append(conditions, metav1.Condition{
			Type: fmt.Sprintf("ConditionOfThirtyCharacters%03d", i), Status: metav1.ConditionUnknown, ObservedGeneration: 1 << 62,
			Reason: "R" + strings.Repeat("r", 127), Message: bounds.Text(message, v1alpha1.MaxConditionMessageBytes), LastTransitionTime: metav1.Now(),
		})
	}
	var variables []v1alpha1.ResolvedEnvVar
	for i := range 1000 {
		name := fmt.Sprintf("%s%s%03d", strings.Repeat(worst, 2), strings.Repeat("N", v1alpha1.MaxEnvNamesBytes/v1alpha1.MaxEnvNames-15), i)
		variables = append(variables, v1alpha1.ResolvedEnvVar{Name: name, Source: v1alpha1.EnvSourceEnvironment})
	}
	variables, _ = bounds.Variables(variables)
	var names []string
	for _, v := range variables {
		names = append(names, v.Name)
	}
	objectName, sum := strings.Repeat("x", 253), strings.Repeat("f", 64)
	path := bounds.PathEnd(strings.Repeat(worst, 5000), v1alpha1.MaxPathBytes)
	var executed []v1alpha1.ExecutedProgram
	var refused []v1alpha1.RefusedProgram
	var paths []string
	for range v1alpha1.MaxPrograms {
		executed = append(executed, v1alpha1.ExecutedProgram{Path: path, Count: 1 << 62})
		refused = append(refused, v1alpha1.RefusedProgram{Path: path, Count: 1 << 62, Rule: result.RuleInterpreter})
		paths = append(paths, path)
	}
	var artifacts []v1alpha1.Artifact
	for range v1alpha1.MaxArtifacts {
		artifacts = append(artifacts, v1alpha1.Artifact{
			Path: strings.Repeat("x", v1alpha1.MaxArtifactPathsBytes/v1alpha1.MaxArtifacts), Bytes: result.MaxArtifactBytes, SHA256: strings.Repeat("f", 64),
			MediaType: strings.Repeat("x", result.MaxMediaType), State: v1alpha1.OutputComplete,
		})
	}
	var denied []v1alpha1.DeniedHost
	for range result.MaxDenials {
		denied = append(denied, v1alpha1.DeniedHost{Host: bounds.Text(strings.Repeat(worst, 5000), v1alpha1.MaxDeniedHostBytes), Port: 65535, Count: 1 << 62})
	}
	var redactions []v1alpha1.Redaction
	for range result.MaxRedactions {
		redactions = append(redactions, v1alpha1.Redaction{Name: strings.Repeat("N", result.MaxRedactionName), Stream: v1alpha1.RedactedMessage, Count: 1 << 62})
	}
	counted := v1alpha1.CountedApproval{
		Name: strings.Repeat("x", 253), UID: strings.Repeat("x", 36), Username: bounds.Text(strings.Repeat(worst, 5000), v1alpha1.MaxApprovalNameBytes),
	}
	texts := slices.Repeat([]string{bounds.Text(strings.Repeat(worst, 5000), v1alpha1.MaxApprovalTextBytes)}, v1alpha1.MaxApprovalTexts)
	return map[string]any{
		"approval.summary": strings.Repeat("x", v1alpha1.MaxApprovalSummaryBytes), "approval.digest": "sha256:" + strings.Repeat("f", 64),
		"approval.needed": v1alpha1.MaxApprovers, "approval.approvedBy": slices.Repeat([]v1alpha1.CountedApproval{counted}, v1alpha1.MaxApprovers),
		"approval.deniedBy": counted, "approval.causes": texts, "approval.messages": texts, "approval.approvers": texts,
		"redactions": redactions, "network.denied": denied, "network.allowed": slices.Repeat([]string{strings.Repeat("x", 255)}, v1alpha1.MaxReachableHosts),
		"artifacts": artifacts, "artifactsMessage": strings.Repeat("x", v1alpha1.MaxArtifactsMessageBytes),
		"executed": executed, "refused": refused,
		"isolation.namesOnly": paths, "isolation.unheldApplets": paths, "isolation.writable": paths, "isolation.notFound": paths,
		"message": message, "conditions": conditions, "action.summary": strings.Repeat(worst, v1alpha1.MaxSummaryRunes),
		// Names of objects, sums and reasons need no escapes.
		"session.name": objectName, "environment.name": objectName, "pod": objectName, "job": objectName, "node": objectName,
		"isolation.runtimeClass": objectName, "runner.podUID": strings.Repeat("x", 36),
		"reason": strings.Repeat("R", 128), "runner.keyHash": sum, "streams.stdout.sha256": sum, "streams.stderr.sha256": sum,
		"isolation.noNetwork":    bounds.Text(strings.Repeat(worst, 5000), v1alpha1.MaxPathBytes),
		"action.tool":            bounds.Text(strings.Repeat(worst, 5000), v1alpha1.MaxToolBytes),
		"environment.workingDir": bounds.PathEnd(strings.Repeat(worst, 5000), v1alpha1.MaxPathBytes),
		"environment.env":        variables, "environment.strippedEnv": names,
	}
}

// unbounded are left out: how much of a process's output is kept is decided by what room there is, and a call that has
// ended keeps no decision.
var unbounded = []string{"stdout", "stderr", "output", "runner.decision"}

// largest is the longest JSON that a schema takes.
func largest(t *testing.T, schema *apiextensionsv1.JSONSchemaProps, path string) any {
	t.Helper()
	if value, ok := bounded()[path]; ok {
		return value
	}
	switch schema.Type {
	case "object":
		object := map[string]any{}
		for name, inner := range schema.Properties {
			if at := strings.TrimPrefix(path+"."+name, "."); !slices.Contains(unbounded, at) {
				object[name] = largest(t, &inner, at)
			}
		}
		return object
	case "array":
		t.Errorf("status.%s is a list that isn't among those which the operator cuts", path)
		return nil
	case "string":
		return longest(t, schema, path)
	case "integer":
		return int64(map[bool]int{true: -1 << 31, false: -1 << 62}[schema.Format == "int32"])
	default:
		return false
	}
}

func longest(t *testing.T, schema *apiextensionsv1.JSONSchemaProps, path string) any {
	t.Helper()
	switch {
	case len(schema.Enum) > 0:
		value := ""
		for _, choice := range schema.Enum {
			if text := strings.Trim(string(choice.Raw), `"`); len(text) > len(value) {
				value = text
			}
		}
		return value
	case schema.Format == "date-time":
		return "2026-01-02T03:04:05.000006Z"
	case schema.MaxLength == nil:
		t.Errorf("status.%s is a string without a bound", path)
		return ""
	default:
		return strings.Repeat(worst, int(*schema.MaxLength))
	}
}

func TestAStatusAlwaysFits(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "config", "crd", "toolcall.dev_toolcalls.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(raw, crd); err != nil {
		t.Fatal(err)
	}
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
	var status []byte
	// A file action collects nothing.
	for _, without := range [][]string{{"artifacts", "artifactsMessage", "omittedArtifacts"}, {"file"}} {
		all, ok := largest(t, &schema, "").(map[string]any)
		if !ok {
			t.Fatal("a status is no object")
		}
		for _, field := range without {
			delete(all, field)
		}
		if status, err = json.Marshal(all); err != nil {
			t.Fatal(err)
		}
		t.Logf("the largest status without %s takes %d bytes without streams and output", without[0], len(status))
		if len(status) > v1alpha1.MaxStatusBytes {
			t.Errorf("that is more than %d", v1alpha1.MaxStatusBytes)
		}
	}

	// It fits beside the largest spec.
	s := newSpace(t)
	call := newCall(s.namespace, "large")
	call.Spec.Structured.Args = repeated(strings.Repeat("x", (v1alpha1.MaxSpecBytes-4096)/64), 64)
	s.create(call)
	// While the call runs, its decision is there and its output isn't.
	running := fmt.Appendf(nil, `{"status":{"phase":"Running","runner":{"podUID":"u","keyHash":"k","decision":%q}}}`, strings.Repeat("A", 262144))
	for _, patch := range [][]byte{running, []byte(`{"status":{"runner":{"decision":null}}}`), fmt.Appendf(nil, `{"status":%s}`, status)} {
		if err := s.admin.Status().Patch(t.Context(), call, client.RawPatch("application/merge-patch+json", patch)); err != nil {
			t.Error(err)
		}
	}
}
