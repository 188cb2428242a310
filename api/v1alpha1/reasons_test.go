package v1alpha1_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/docurl"
)

// Whoever meets a reason finds a section with its name: what it looks like, what to look at, and what to do.
func TestEveryReasonIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	constants, err := os.ReadFile("conditions.go")
	if err != nil {
		t.Fatal(err)
	}
	reasons := regexp.MustCompile(`(?m)^\tReason\w+ = "(\w+)"`).FindAllStringSubmatch(string(constants), -1)
	if len(reasons) < 45 {
		t.Fatalf("only %d reasons were found", len(reasons))
	}
	sections, _, _ := strings.Cut(string(page), "\n## Alerts\n")
	known := map[string]bool{}
	for _, found := range reasons {
		reason := found[1]
		known[reason] = true
		if page, anchor, _ := strings.Cut(docurl.Reason(reason), "#"); page != docurl.Page("troubleshooting.md") || headingOf(sections, anchor) != reason {
			t.Errorf("%s doesn't lead to the section %s", docurl.Reason(reason), reason)
		}
		_, section, _ := strings.Cut(sections, "\n### "+reason+"\n")
		section, _, _ = strings.Cut(section, "\n#")
		for _, part := range []string{"\n- Symptom: ", "\n- Command: ", "\n- Fix: "} {
			if strings.Count(section, part) != 1 {
				t.Errorf("docs/troubleshooting.md doesn't have one %q for reason %s", strings.TrimSpace(part), reason)
			}
		}
	}
	seen := map[string]bool{}
	for line := range strings.Lines(sections) {
		heading, ok := strings.CutPrefix(strings.TrimSpace(line), "### ")
		if !ok {
			continue
		}
		if !known[heading] || seen[heading] {
			t.Errorf("docs/troubleshooting.md has a section %s, which is no reason or is there already", heading)
		}
		seen[heading] = true
	}
}

// headingOf returns the one heading that has the anchor, empty if none or several have it.
func headingOf(page, anchor string) string {
	var found []string
	for line := range strings.Lines(page) {
		text, isHeading := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if text = strings.TrimSpace(text); isHeading && strings.HasPrefix(line, "#") && strings.ToLower(text) == anchor {
			found = append(found, text)
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}
