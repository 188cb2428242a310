package v1alpha1_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strconv"
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
	reasons := slices.Concat(slices.Collect(maps.Values(reasonsOf(t, "conditions.go")))...)
	if len(reasons) < 45 {
		t.Fatalf("only %d reasons were found", len(reasons))
	}
	sections, _, _ := strings.Cut(string(page), "\n## Alerts\n")
	known := map[string]bool{}
	for _, reason := range reasons {
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

// The client libraries raise a class of error for each reason, and read which one from this table.
func TestEveryReasonHasAClassInTheClientLibraries(t *testing.T) {
	t.Parallel()
	table := reasonTableOf(t)
	known := map[string]bool{
		// The contract has them; the operator asks for no approvals yet.
		"ApprovalDenied": true, "ApprovalExpired": true,
	}
	for block, reasons := range reasonsOf(t, "conditions.go") {
		for _, reason := range reasons {
			known[reason] = true
			if places := table.placesOf(reason); !slices.Contains(placesFor(block), strings.Join(places, " ")) {
				t.Errorf("clients/scenarios/reasons.json has %s in %q, want one of %q: it is one of %q", reason, places, placesFor(block), block)
			}
		}
	}
	for _, reason := range table.reasons() {
		if !known[reason] {
			t.Errorf("clients/scenarios/reasons.json has %s, which is no reason of the API", reason)
		}
	}
}

// reasonTable is what the client libraries make of reasons: of calls by phase, and of sessions. Other reasons end neither.
type reasonTable struct {
	Calls    map[string]map[string]string `json:"calls"`
	Sessions map[string]string            `json:"sessions"`
	Other    []string                     `json:"other"`
}

func reasonTableOf(t *testing.T) (table reasonTable) {
	t.Helper()
	data, err := os.ReadFile("../../clients/scenarios/reasons.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	return table
}

// placesOf names the parts of the table that have the reason.
func (r reasonTable) placesOf(reason string) (places []string) {
	for phase, classes := range r.Calls {
		if _, ok := classes[reason]; ok {
			places = append(places, phase)
		}
	}
	if _, ok := r.Sessions[reason]; ok {
		places = append(places, "session")
	}
	if slices.Contains(r.Other, reason) {
		places = append(places, "other")
	}
	return places
}

func (r reasonTable) reasons() []string {
	reasons := slices.Concat(r.Other, slices.Collect(maps.Keys(r.Sessions)))
	for _, classes := range r.Calls {
		reasons = slices.AppendSeq(reasons, maps.Keys(classes))
	}
	return reasons
}

// placesFor are the places that the table may have a reason in, by the comment of the constants that it is one of.
func placesFor(block string) []string {
	switch {
	case strings.HasPrefix(block, "Terminal reasons of a ToolCall"):
		// A session that lost its pod has the reason of its calls.
		return []string{"Succeeded", "Failed", "Failed session", "Cancelled"}
	case strings.HasPrefix(block, "Reasons of a ToolCall that was denied"):
		return []string{"Denied"}
	case strings.HasPrefix(block, "Reasons of a ToolSession"):
		return []string{"session", "other"}
	default:
		return []string{"other"}
	}
}

// reasonsOf gives the reasons of a file by the comments of the declarations that they are in.
func reasonsOf(t *testing.T, file string) map[string][]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string][]string{}
	for _, decl := range parsed.Decls {
		constants, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range constants.Specs {
			value, ok := spec.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(value.Names[0].Name, "Reason") {
				continue
			}
			reason, err := strconv.Unquote(value.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			block := constants.Doc.Text()
			reasons[block] = append(reasons[block], reason)
		}
	}
	return reasons
}
