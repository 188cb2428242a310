package figures

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table is rows under a header.
type Table struct {
	Header []string
	Rows   [][]string
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Print writes the table as aligned text or as Markdown, and an empty line after it; nothing when it has no rows.
func (t *Table) Print(out io.Writer, markdown bool) {
	switch {
	case len(t.Rows) == 0:
		return
	case markdown:
		fmt.Fprintf(out, "| %s |\n|%s\n", strings.Join(t.Header, " | "), strings.Repeat("---|", len(t.Header)))
		for _, row := range t.Rows {
			fmt.Fprintf(out, "| %s |\n", strings.Join(row, " | "))
		}
	default:
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, row := range append([][]string{t.Header}, t.Rows...) {
			fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
		}
		w.Flush()
	}
	fmt.Fprintln(out)
}
