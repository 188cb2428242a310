package plugin

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"toolcall.dev/operator/internal/plugin/terminal"
)

// newTable returns a writer that aligns tab-separated cells.
func newTable(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 8, 2, ' ', 0) }

// writeRow writes one row of a table; empty cells show as a dash.
func writeRow(out io.Writer, cells []string) {
	safe := make([]string, len(cells))
	for i, cell := range cells {
		safe[i] = terminal.SafeLine(cell)
		if strings.TrimSpace(safe[i]) == "" {
			safe[i] = "-"
		}
	}
	fmt.Fprintln(out, strings.Join(safe, "\t"))
}

// formatMilliseconds formats a duration for people.
func formatMilliseconds(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	default:
		return d.Round(time.Second).String()
	}
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+by)
}

func orText(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
