package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report says what was run, when and where, and what was measured.
type Report struct {
	Time    time.Time `json:"time"`
	Seconds float64   `json:"seconds"`
	Command string    `json:"command"`
	Commit  string    `json:"commit"`
	Machine string    `json:"machine"`
	// Load is this machine's load average over one minute when the benchmark began, LoadAfter when it had ended.
	Load      string `json:"load"`
	LoadAfter string `json:"loadAfter"`
	Rows      []*Row `json:"rows"`
	// Failed says why parts could not be measured to their end.
	Failed map[string]string `json:"failed,omitempty"`

	// progress is where the benchmark says what it does.
	progress io.Writer
}

// Row is what was measured of one thing in one unit.
type Row struct {
	Part string `json:"part"`
	Name string `json:"name"`
	Unit string `json:"unit"`
	Summary
	Against []Comparison `json:"against,omitempty"`
}

// Comparison is of a row's median with another's of the same part and unit.
type Comparison struct {
	Name       string  `json:"name"`
	Ratio      float64 `json:"ratio"`
	Difference float64 `json:"difference"`
}

// NewReport is called before anything is measured.
func NewReport(command string, progress io.Writer) *Report {
	return &Report{
		Time: time.Now(), Command: command, Commit: commit(), Machine: fmt.Sprintf("%d cores", runtime.NumCPU()),
		Load: load(), Failed: map[string]string{}, progress: progress,
	}
}

// Say writes what the benchmark does.
func (r *Report) Say(format string, args ...any) {
	fmt.Fprintf(r.progress, "bench: "+format+"\n", args...)
}

// Add adds a row. Rows of times are in seconds, and printed in milliseconds.
func (r *Report) Add(part, name, unit string, values []float64, against ...string) {
	row := &Row{Part: part, Name: name, Unit: unit, Summary: Summarize(values)}
	for _, other := range against {
		i := slices.IndexFunc(r.Rows, func(o *Row) bool { return o.Part == part && o.Name == other && o.Unit == unit })
		if i < 0 || r.Rows[i].P50 == 0 {
			continue
		}
		base := r.Rows[i]
		row.Against = append(row.Against, Comparison{Name: other, Ratio: row.P50 / base.P50, Difference: row.P50 - base.P50})
	}
	r.Rows = append(r.Rows, row)
	r.Say("%s: %s", part, strings.Join(row.cells(), " "))
}

// Fail notes that a part could not be measured to its end.
func (r *Report) Fail(part string, err error) {
	r.Failed[part] = err.Error()
	r.Say("%s: %v", part, err)
}

// End is called after everything was measured.
func (r *Report) End() { r.Seconds, r.LoadAfter = time.Since(r.Time).Seconds(), load() }

// Err says which parts failed.
func (r *Report) Err() error {
	var failures []error
	for _, part := range slices.Sorted(maps.Keys(r.Failed)) {
		failures = append(failures, fmt.Errorf("%s: %s", part, r.Failed[part]))
	}
	return errors.Join(failures...)
}

// Print writes the report as one table.
func (r *Report) Print(out io.Writer) error {
	fmt.Fprintf(out, "%s, commit %s, %.0f s\n%s\n%s; load before %s, after %s\n", r.Time.UTC().Format(time.RFC3339), r.Commit, r.Seconds,
		r.Command, r.Machine, r.Load, r.LoadAfter)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	part := ""
	for _, row := range r.Rows {
		if row.Part != part {
			part = row.Part
			fmt.Fprintf(w, "\n%s\t\tn\tmin\tp50\tp90\tp99\tmax\n", part)
		}
		fmt.Fprintln(w, "  "+strings.Join(row.cells(), "\t"))
	}
	return w.Flush()
}

// cells are those of the table. What was measured once has one value.
func (r *Row) cells() []string {
	unit, factor := r.Unit, 1.0
	if unit == "s" {
		unit, factor = "ms", 1000
	}
	cells := []string{r.Name, unit, fmt.Sprint(r.Count)}
	for _, value := range []float64{r.Min, r.P50, r.P90, r.P99, r.Max} {
		cells = append(cells, fmt.Sprintf("%.2f", factor*value))
	}
	if r.Count == 1 {
		cells[3], cells[5], cells[6], cells[7] = "", "", "", ""
	}
	for _, c := range r.Against {
		cells = append(cells, fmt.Sprintf("%.3f × %s (%+.2f)", c.Ratio, c.Name, factor*c.Difference))
	}
	return cells
}

// Save writes the report as JSON, and makes the file's folder; without a file it does nothing.
func (r *Report) Save(file string) error {
	if file == "" {
		return nil
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make the report's folder: %w", err)
	}
	if err := os.WriteFile(file, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// commit of the checkout that the benchmark is run from, with a plus sign when it has changes; empty when git can't say.
func commit() string {
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return ""
	}
	id := strings.TrimSpace(string(head))
	if changes, err := exec.Command("git", "status", "--porcelain").Output(); err != nil || len(changes) > 0 {
		id += "+"
	}
	return id
}

// load is empty where there is no /proc.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
