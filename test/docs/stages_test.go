package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolcall.dev/operator/controllers/toolcall"
	"toolcall.dev/operator/controllers/toolsession"
)

// The pages have the tables of stages that the controllers have.
func TestTheStagesAreDocumented(t *testing.T) {
	t.Parallel()
	var ofCalls, ofSessions string
	for _, row := range toolcall.Table() {
		ofCalls += stageRow(row.Stage, row.When, row.Does, row.Next)
	}
	for _, row := range toolsession.Table() {
		ofSessions += stageRow(row.Stage, row.When, row.Does, row.Next)
	}
	for page, rows := range map[string]string{"docs/concepts.md": ofCalls, "docs/sessions.md": ofSessions} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		want := "\n| stage | when | the operator | next |\n|---|---|---|---|\n" + rows + "\n"
		if !strings.Contains(string(text), want) {
			t.Errorf("the table of stages in %s is out of date; it has to be\n%s", page, want)
		}
	}
}

// stageRow is a row of a Markdown table.
func stageRow[Stage ~string](stage Stage, when, does string, next []Stage) string {
	var names []string
	for _, n := range next {
		names = append(names, fmt.Sprintf("`%s`", n))
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", stage, when, does, strings.Join(names, ", "))
}
