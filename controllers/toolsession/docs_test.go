package toolsession

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of stages into the documentation")

const (
	stagesPage  = "../../docs/sessions.md"
	stagesBegin = "<!-- stages -->\n"
	stagesEnd   = "<!-- /stages -->"
)

// stagesTable is the table as Markdown.
func stagesTable() string {
	var text strings.Builder
	text.WriteString("| stage | when | the operator | next |\n|---|---|---|---|\n")
	for _, row := range Table() {
		var next []string
		for _, stage := range row.Next {
			next = append(next, fmt.Sprintf("`%s`", stage))
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n", row.Stage, row.When, row.Does, strings.Join(next, ", "))
	}
	return text.String()
}

func TestTheStagesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(stagesPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), stagesBegin)
	table, after, ends := strings.Cut(rest, stagesEnd)
	if !begins || !ends {
		t.Fatalf("%s lacks %q or %q", stagesPage, stagesBegin, stagesEnd)
	}
	if table == stagesTable() {
		return
	}
	if !*update {
		t.Fatalf("the table of stages in %s is out of date: run 'go test ./controllers/toolsession -run %s -update'", stagesPage, t.Name())
	}
	if err := os.WriteFile(stagesPage, []byte(before+stagesBegin+stagesTable()+stagesEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A cell of a Markdown table ends at a bar or a line's end.
func TestTheStagesFitIntoATable(t *testing.T) {
	t.Parallel()
	for _, row := range Table() {
		for _, cell := range []string{string(row.Stage), row.When, row.Does} {
			if strings.ContainsAny(cell, "|\n") {
				t.Errorf("%s: %q", row.Stage, cell)
			}
		}
	}
}
