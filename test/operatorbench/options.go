package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Parts of a run, in order.
const (
	partCold     = "cold"
	partBare     = "bare"
	partWarm     = "warm"
	partFinished = "finished"
)

var allParts = []string{partCold, partBare, partWarm, partFinished}

// options are what the command line says.
type options struct {
	manager     string
	qps         float64
	calls       int
	inFlight    int
	pool        int
	finished    int
	outputBytes int
	probes      int
	idle        time.Duration
	only        []string
	profiles    string
	json        string
	markdown    bool
	from        string
}

func parse(args []string, usage io.Writer) (*options, error) {
	o := &options{only: allParts}
	fs := flag.NewFlagSet("operatorbench", flag.ContinueOnError)
	fs.SetOutput(usage)
	fs.StringVar(&o.manager, "manager", "bin/manager", "the operator's program")
	fs.Float64Var(&o.qps, "qps", 0, "the operator's --qps; 0 for what it has by default")
	fs.IntVar(&o.calls, "calls", 10000, "calls of each of the parts cold, bare and warm")
	fs.IntVar(&o.inFlight, "in-flight", 100, "calls that are on their way at the same time")
	fs.IntVar(&o.pool, "pool", 100, "waiting pods in the part warm")
	fs.IntVar(&o.finished, "finished", 50000, "finished calls in the part finished")
	fs.IntVar(&o.outputBytes, "output-bytes", 4096, "standard output of each finished call; its text for models holds it again")
	fs.IntVar(&o.probes, "probes", 2000, "new calls before and after, to see whether they got slower, ten at a time")
	fs.DurationVar(&o.idle, "idle", time.Minute, "how long the operator is left alone before its memory is looked at")
	fs.Func("only", "`parts` to run, of cold,bare,warm,finished, commas between (default all)", func(text string) error {
		o.only = strings.Split(text, ",")
		return nil
	})
	fs.StringVar(&o.profiles, "profiles", "", "folder for CPU profiles of the operator and of the API server, and the operator's heap profiles, for go tool pprof; empty for none")
	fs.StringVar(&o.json, "json", "bin/operatorbench.json", "file for all figures; empty for none")
	fs.BoolVar(&o.markdown, "markdown", false, "print the tables as Markdown")
	fs.StringVar(&o.from, "from", "", "measure nothing: print the tables of an earlier run from its JSON file")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	return o, o.validate(fs.Args())
}

func (o *options) validate(rest []string) error {
	var wrong []error
	if len(rest) > 0 {
		wrong = append(wrong, fmt.Errorf("arguments are not used: %q", rest))
	}
	for _, n := range []struct {
		name             string
		value, low, high int
	}{
		{"-calls", o.calls, 1, 1000000},
		{"-in-flight", o.inFlight, 1, 10000},
		{"-pool", o.pool, 1, 200},
		{"-finished", o.finished, 1, 1000000},
		{"-output-bytes", o.outputBytes, 0, 256 << 10},
		{"-probes", o.probes, 1, 1000000},
	} {
		if n.value < n.low || n.value > n.high {
			wrong = append(wrong, fmt.Errorf("%s is %d, it must be between %d and %d", n.name, n.value, n.low, n.high))
		}
	}
	if o.qps < 0 || o.idle < 0 {
		wrong = append(wrong, errors.New("-qps and -idle must not be below 0"))
	}
	for _, part := range o.only {
		if !slices.Contains(allParts, part) {
			wrong = append(wrong, fmt.Errorf("-only has %q, which is none of %s", part, strings.Join(allParts, ",")))
		}
	}
	if o.has(partBare) && !o.has(partCold) {
		wrong = append(wrong, errors.New("-only has bare, which writes again what the part cold wrote: add cold"))
	}
	return errors.Join(wrong...)
}

func (o *options) has(part string) bool { return slices.Contains(o.only, part) }
