package policy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

// embedded finds the YAML of a page: what commands apply or write, and manifests of their own.
var embedded = regexp.MustCompile("(?s)<<'?YAML'?\n(.*?)\nYAML\n|```yaml\n(.*?)```")

// documented are the policies of docs/policies.md.
func documented(t *testing.T) (policies []v1alpha1.ExecutionPolicy) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range embedded.FindAllStringSubmatch(string(page), -1) {
		if text := found[1] + found[2]; strings.Contains(text, "kind: ExecutionPolicy") {
			parsed, err := Parse(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			policies = append(policies, parsed...)
		}
	}
	return policies
}

// sampled are the policies of config/samples.
func sampled(t *testing.T) (policies []v1alpha1.ExecutionPolicy) {
	t.Helper()
	names, err := filepath.Glob("../../../config/samples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "kind: ExecutionPolicy\n") {
			parsed, err := Parse(strings.NewReader(string(text)))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			policies = append(policies, parsed...)
		}
	}
	return policies
}

// Each policy of the page says by examples what passes and what is refused. The page itself breaks one, which it then corrects.
func TestThePoliciesOfTheDocumentationAreWhatTheirExamplesSay(t *testing.T) {
	t.Parallel()
	policies, broken := documented(t), 0
	if len(policies) < 7 {
		t.Fatalf("only %d policies were found", len(policies))
	}
	for i := range policies {
		p := &policies[i]
		_, err := decide.CompilePolicy(p)
		if len(p.Spec.Rules) == 1 && p.Name == "team-b" && err != nil {
			broken++
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		seen := map[v1alpha1.ExpectedVerdict]bool{}
		for _, e := range p.Spec.Examples {
			seen[e.Expect] = true
		}
		if !seen[v1alpha1.ExpectAllow] || !seen[v1alpha1.ExpectDeny] {
			t.Errorf("%s lacks an example of a call that passes, or of one that is refused", p.Name)
		}
	}
	if broken != 1 {
		t.Errorf("%d policies of the page are broken on purpose", broken)
	}
}

func TestTheSampledPoliciesAreWhatTheirExamplesSay(t *testing.T) {
	t.Parallel()
	policies, examples := sampled(t), 0
	for i := range policies {
		if _, err := decide.CompilePolicy(&policies[i]); err != nil {
			t.Errorf("%s: %v", policies[i].Name, err)
		}
		examples += len(policies[i].Spec.Examples)
	}
	if len(policies) < 10 || examples < 8 {
		t.Errorf("%d policies with %d examples were found", len(policies), examples)
	}
}
