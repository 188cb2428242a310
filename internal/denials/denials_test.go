package denials

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Each explanation names a rule and what the requester can do, in plain text without a final full stop.
func TestRulesReadAlike(t *testing.T) {
	t.Parallel()
	for reason, r := range rules {
		for _, text := range []string{r.Field, r.Owner, r.Requester} {
			if strings.HasSuffix(text, ".") || strings.TrimSpace(text) != text {
				t.Errorf("%s: %q", reason, text)
			}
		}
		if r.Field == "" || r.Requester == "" {
			t.Errorf("%s has no rule or no advice: %+v", reason, r)
		}
	}
}

// explain-denial needs a rule for every reason of a denial.
func TestEveryDenialHasARule(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../../api/v1alpha1/conditions.go")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(source), "// Reasons of a ToolCall that was denied.\n")
	block, _, _ := strings.Cut(after, "\n)\n")
	reasons := regexp.MustCompile(`\tReason\w+ = "(\w+)"`).FindAllStringSubmatch(block, -1)
	if len(reasons) < 20 {
		t.Fatalf("%d reasons of denials", len(reasons))
	}
	for _, found := range reasons {
		reason := found[1]
		if r := rules[reason]; r.Field == "" || r.Requester == "" {
			t.Errorf("%s: %+v", reason, r)
		}
	}
}
