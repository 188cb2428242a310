// Command benchplot draws what 'make bench' measured. It reads its JSON file and writes a PNG.
//
// It draws what is in the file and computes nothing; a part that was not measured has no panel.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// summary is in seconds.
type summary struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

type burst struct {
	Size    int     `json:"size"`
	Kind    string  `json:"kind"`
	Seconds float64 `json:"seconds"`
	Each    summary `json:"each"`
}

type rate struct {
	Kind string  `json:"kind"`
	Rate float64 `json:"rate"`
	Each summary `json:"each"`
}

// report is the part of the file that is drawn.
type report struct {
	Totals map[string]summary `json:"totals"`
	Bursts []burst            `json:"bursts"`
	Rates  []rate             `json:"rates"`
}

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "benchplot:", err)
		os.Exit(1)
	}
}

func run(args []string, usage io.Writer) error {
	fs := flag.NewFlagSet("benchplot", flag.ContinueOnError)
	fs.SetOutput(usage)
	in := fs.String("in", "", "the JSON file of a benchmark (required)")
	out := fs.String("out", "", "the PNG to write (required)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *in == "" || *out == "" || fs.NArg() > 0 {
		return errors.New("-in and -out are required, and nothing else is: benchplot -in bench.json -out plot.png")
	}
	raw, err := os.ReadFile(*in)
	if err != nil {
		return fmt.Errorf("read the benchmark's figures: %w", err)
	}
	r := &report{}
	if err := json.Unmarshal(raw, r); err != nil {
		return fmt.Errorf("%s is not a benchmark's JSON file: %w", *in, err)
	}
	image, err := render(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(*out, image, 0o644); err != nil {
		return fmt.Errorf("write the plot: %w", err)
	}
	return nil
}
