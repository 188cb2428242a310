// Package stages reads the tables of stages in the pages, for the tests of the controllers that have these stages.
package stages

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Row is a line of a table: a stage, and those where an object goes from there.
type Row struct {
	Stage string
	Next  []string
}

var (
	header = "\n| stage | when | the operator | next |\n|---|---|---|---|\n"
	row    = regexp.MustCompile("^\\| `(\\w+)` \\| ([^|]+) \\| ([^|]+) \\| ([^|]*) \\|$")
	name   = regexp.MustCompile("`(\\w+)`")
)

// Read reads the table of a page.
func Read(t *testing.T, page string) (rows []Row) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), header)
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		found := row.FindStringSubmatch(strings.TrimSpace(line))
		if found == nil {
			t.Fatalf("%s: this is no row of a table of stages: %s", page, line)
		}
		one := Row{Stage: found[1]}
		for _, next := range name.FindAllStringSubmatch(found[4], -1) {
			one.Next = append(one.Next, next[1])
		}
		rows = append(rows, one)
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no table of stages", page)
	}
	return rows
}
