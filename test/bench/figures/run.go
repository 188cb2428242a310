package figures

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Run says what was run, when and where. Every command's report begins with it.
type Run struct {
	Time    time.Time `json:"time"`
	Seconds float64   `json:"seconds"`
	Command string    `json:"command"`
	Commit  string    `json:"commit"`
	Machine string    `json:"machine"`
	// Load is this machine's load average over one minute when the benchmark began, LoadAfter when it had ended.
	Load      string `json:"load"`
	LoadAfter string `json:"loadAfter"`
}

// Report is what a command measured: its JSON file, and what its tables are made of.
type Report interface {
	Head() *Run
	Tables() []*Table
}

// Head implements a part of Report for those that embed a Run.
func (r *Run) Head() *Run { return r }

// Begin is called before anything is measured.
func (r *Run) Begin(command string) {
	*r = Run{Time: time.Now(), Command: command, Commit: commit(), Machine: fmt.Sprintf("%d cores", runtime.NumCPU()), Load: load()}
}

// End is called after everything is.
func (r *Run) End() { r.Seconds, r.LoadAfter = time.Since(r.Time).Seconds(), load() }

// Print writes a report as text.
func Print(out io.Writer, report Report, markdown bool) {
	r := report.Head()
	fmt.Fprintf(out, "%s, commit %s, %.0f s\n%s\n%s; load before %s, after %s\n\n",
		r.Time.UTC().Format("2006-01-02T15:04:05Z"), r.Commit, r.Seconds, r.Command, r.Machine, r.Load, r.LoadAfter)
	for _, table := range report.Tables() {
		table.Print(out, markdown)
	}
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

// Save writes a report as JSON, and makes the file's folder; without a file it does nothing.
func Save(file string, report Report) error {
	if file == "" {
		return nil
	}
	raw, err := json.MarshalIndent(report, "", "  ")
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

// Read reads what Save has written.
func Read(file string, report Report) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the figures of an earlier run: %w", err)
	}
	if err := json.Unmarshal(raw, report); err != nil {
		return fmt.Errorf("%s is not the JSON file of a run: %w", file, err)
	}
	return nil
}
