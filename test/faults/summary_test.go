package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"text/tabwriter"
)

// row is what one fault came to.
type row struct {
	Fault string
	// Calls were in flight, the one that was created after the fault included.
	Calls int
	// Ends counts the reasons that they ended with.
	Ends map[string]int
	// RanTwice, NotEnded and Wrong count what may never be.
	RanTwice, NotEnded, Wrong int
	// FirstCallSeconds is from the end of the fault until a call created after it has ended, AllSeconds until all
	// that were in flight have.
	FirstCallSeconds, AllSeconds float64
}

var summary struct {
	sync.Mutex
	rows []row
}

func record(t *testing.T, r row) {
	t.Helper()
	t.Logf("%s: %d calls, %v, ran twice %d, not ended %d, wrong %d; after the fault the first new call took %.1f s, all %.1f s",
		r.Fault, r.Calls, r.Ends, r.RanTwice, r.NotEnded, r.Wrong, r.FirstCallSeconds, r.AllSeconds)
	summary.Lock()
	defer summary.Unlock()
	summary.rows = append(summary.rows, r)
}

// summarize prints the table, and writes it where TOOLCALL_FAULTS_REPORT says.
func summarize(out io.Writer) error {
	summary.Lock()
	rows := slices.Clone(summary.rows)
	summary.Unlock()
	if len(rows) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FAULT\tCALLS\tCOMPLETED\tOTHERWISE\tRAN TWICE\tNOT ENDED\tWRONG\tFIRST CALL\tALL")
	for _, r := range rows {
		completed := r.Ends["Completed"]
		otherwise := 0
		for _, n := range r.Ends {
			otherwise += n
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f s\t%.1f s\n", r.Fault, r.Calls, completed,
			otherwise-completed, r.RanTwice, r.NotEnded, r.Wrong, r.FirstCallSeconds, r.AllSeconds)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	path := os.Getenv("TOOLCALL_FAULTS_REPORT")
	if path == "" {
		return nil
	}
	raw, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the summary: %w", err)
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644)
}
