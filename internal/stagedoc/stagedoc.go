// Package stagedoc compares the table of stages in a page of the documentation with that of a controller, or writes it there.
//
// Only tests import it: it adds the flag -update to a program.
package stagedoc

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of stages into the documentation")

const (
	begin = "<!-- stages -->\n"
	end   = "<!-- /stages -->"
)

// Row is one stage, as a controller's table has it.
type Row[Stage ~string] struct {
	Stage      Stage
	When, Does string
	Next       []Stage
}

// Check fails when the page has another table. page is relative to the project's folder, and the test is in a folder of
// controllers/.
func Check[Stage ~string](t *testing.T, page string, rows []Row[Stage]) {
	t.Helper()
	path := filepath.Join("..", "..", filepath.FromSlash(page))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), begin)
	has, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatalf("%s lacks %q or %q", page, begin, end)
	}
	want := table(t, rows)
	if has == want {
		return
	}
	if !*update {
		t.Fatalf("the table of stages in %s is out of date: run this package's tests with '-run %s -update'", page, t.Name())
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// table is the table as Markdown.
func table[Stage ~string](t *testing.T, rows []Row[Stage]) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("| stage | when | the operator | next |\n|---|---|---|---|\n")
	for _, row := range rows {
		var next []string
		for _, stage := range row.Next {
			next = append(next, fmt.Sprintf("`%s`", stage))
		}
		for _, cell := range []string{string(row.Stage), row.When, row.Does} {
			// A cell of a Markdown table ends at a bar or a line's end.
			if strings.ContainsAny(cell, "|\n") {
				t.Errorf("%s: %q", row.Stage, cell)
			}
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n", row.Stage, row.When, row.Does, strings.Join(next, ", "))
	}
	return text.String()
}
