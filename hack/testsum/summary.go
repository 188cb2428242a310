package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
)

// resultsFile holds one outcome a line.
const resultsFile = "results.jsonl"

// outcome is what came of a stage.
type outcome struct {
	Stage string
	Totals
	Seconds float64
}

func (o *outcome) verdict() string {
	if o.Failed > 0 {
		return "FAILED"
	}
	return "ok"
}

func (o *outcome) record(logs string) error {
	f, err := os.OpenFile(filepath.Join(logs, resultsFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(o), f.Close())
}

// summarize prints a table of all stages, and a last line that says it all.
func summarize(logs string, out io.Writer) error {
	f, err := os.Open(filepath.Join(logs, resultsFile))
	if err != nil {
		return err
	}
	defer f.Close()
	all := Totals{}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nSTAGE\tRESULT\tPASSED\tFAILED\tSKIPPED\tSECONDS")
	for lines := bufio.NewScanner(f); lines.Scan(); {
		o := outcome{}
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return fmt.Errorf("read %s: %w", f.Name(), err)
		}
		all.add(o.Totals)
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%.1f\n", o.Stage, o.verdict(), o.Passed, o.Failed, o.Skipped, o.Seconds)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d passed, %d failed, %d skipped\n", all.Passed, all.Failed, all.Skipped)
	if all.Failed > 0 {
		return errFailed
	}
	return nil
}
