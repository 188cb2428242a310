package figures

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table is rows under a header, with a line of text above where one is needed.
type Table struct {
	Above string
	rows  [][]string
}

// NewTable is a table with a header, whose cells have | between.
func NewTable(header string) *Table { return (&Table{}).Add("%s", header) }

// Add appends a row: a format and its values, which make cells with | between.
func (t *Table) Add(format string, values ...any) *Table {
	t.rows = append(t.rows, strings.Split(fmt.Sprintf(format, values...), "|"))
	return t
}

// Print writes the table as aligned text or as Markdown, and an empty line after it; nothing when it has no rows.
func (t *Table) Print(out io.Writer, markdown bool) {
	if len(t.rows) < 2 {
		return
	}
	if t.Above != "" {
		fmt.Fprintf(out, "%s\n\n", t.Above)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i, row := range t.rows {
		switch {
		case !markdown:
			fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
			continue
		case i == 1:
			fmt.Fprintln(out, "|"+strings.Repeat("---|", len(row)))
		}
		fmt.Fprintf(out, "| %s |\n", strings.Join(row, " | "))
	}
	w.Flush()
	fmt.Fprintln(out)
}
