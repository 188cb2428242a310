package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Parts of a run, in order.
const (
	partRounds = "rounds"
	partBursts = "bursts"
	partRates  = "rates"
)

// Bounds of what a command line may ask for: a node has room for about a hundred pods.
const (
	maxRounds = 10000
	maxBurst  = 100
	maxRate   = 1000
	maxPool   = 100
)

// options are what the command line says.
type options struct {
	rounds       int
	warmPerRound int
	pool         int
	bursts       []int
	rates        []float64
	rateSeconds  float64
	ratePool     int
	only         []string
	kinds        []string

	image      string
	withRunner string
	runnerPath string

	json     string
	markdown bool
	from     string
	auditLog string

	operatorNS  string
	operatorSA  string
	maxJobRatio float64
	stages      bool
}

// list reads a flag of values with commas between; empty for none.
func list[T any](into *[]T, read func(string) (T, error)) func(string) error {
	return func(text string) error {
		*into = nil
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item == "" {
				continue
			}
			value, err := read(item)
			if err != nil {
				return err
			}
			*into = append(*into, value)
		}
		return nil
	}
}

func text(s string) (string, error)     { return s, nil }
func decimal(s string) (float64, error) { return strconv.ParseFloat(s, 64) }

func parse(args []string, usage io.Writer) (*options, error) {
	o := &options{
		bursts: []int{10, 50}, rates: []float64{1, 2, 4, 6, 8},
		only: []string{partRounds, partBursts, partRates}, kinds: allKinds,
	}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(usage)
	fs.IntVar(&o.rounds, "n", 10, "rounds of one of each at a time; 0 for none")
	fs.IntVar(&o.warmPerRound, "warm-per-round", 4, "warm calls, one after the other, in each round")
	fs.IntVar(&o.pool, "pool", 2, "waiting pods of the warm environment during the rounds")
	fs.Func("bursts", "`sizes` of bursts, commas between: that many at the same time; empty for none (default 10,50)", list(&o.bursts, strconv.Atoi))
	fs.Func("rates", "`rates` of sustained load, calls a second, rising, commas between; empty for none (default 1,2,4,6,8)", list(&o.rates, decimal))
	fs.Float64Var(&o.rateSeconds, "rate-seconds", 15, "seconds for which each rate is kept")
	fs.IntVar(&o.ratePool, "rate-pool", 20, "waiting pods of the warm environment under sustained load")
	fs.Func("only", "`parts` to run, of rounds,bursts,rates (default all)", list(&o.only, text))
	fs.Func("kinds", "`kinds` to measure, of "+strings.Join(allKinds, ",")+" (default all)", list(&o.kinds, text))
	fs.StringVar(&o.image, "image", "toolcall.dev/tools:dev", "image that all run in; it must have true in its PATH")
	fs.StringVar(&o.withRunner, "image-with-runner", "toolcall.dev/tools-with-runner:dev", "the same image with the runner in it")
	fs.StringVar(&o.runnerPath, "runner-path", "/usr/local/bin/toolcall-runner", "where that image has the runner")
	fs.StringVar(&o.json, "json", "bin/bench.json", "file for all samples and figures; empty for none")
	fs.BoolVar(&o.markdown, "markdown", false, "print the tables as Markdown")
	fs.StringVar(&o.from, "from", "", "measure nothing: print the tables of an earlier run from its JSON file")
	fs.StringVar(&o.auditLog, "audit-log", "", "the API server's audit log, to count the operator's writes by resource; without it they are counted by method, from the operator's metrics")
	fs.StringVar(&o.operatorNS, "operator-namespace", "toolcall-system", "namespace of the operator")
	fs.StringVar(&o.operatorSA, "operator-account", "toolcall-operator", "service account of the operator, and the name in its pods' label app.kubernetes.io/name")
	fs.Float64Var(&o.maxJobRatio, "max-job-ratio", 0, "fail when the cold call's p50 is more than this times the bare Job's; 0 for never")
	fs.BoolVar(&o.stages, "stages", true, "also show where the time goes; the clocks of this machine and the node must agree")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	return o, o.validate(fs.Args())
}

func (o *options) validate(rest []string) error {
	var wrong []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	within := func(name string, value, low, high int) {
		check(value >= low && value <= high, "%s is %d, it must be between %d and %d", name, value, low, high)
	}
	check(len(rest) == 0, "arguments are not used: %q", rest)
	within("-n", o.rounds, 0, maxRounds)
	within("-warm-per-round", o.warmPerRound, 1, maxRounds)
	within("-pool", o.pool, 1, maxPool)
	within("-rate-pool", o.ratePool, 1, maxPool)
	for _, size := range o.bursts {
		within("-bursts", size, 1, maxBurst)
	}
	for _, rate := range o.rates {
		check(rate > 0 && rate <= maxRate, "-rates has %g, it must be above 0 and at most %d", rate, maxRate)
	}
	check(slices.IsSorted(o.rates), "-rates must rise: %v", o.rates)
	check(o.rateSeconds >= 1 && o.rateSeconds <= 3600, "-rate-seconds is %g, it must be between 1 and 3600", o.rateSeconds)
	for _, part := range o.only {
		check(slices.Contains([]string{partRounds, partBursts, partRates}, part), "-only has %q, which is no part", part)
	}
	for _, kind := range o.kinds {
		check(slices.Contains(allKinds, kind), "-kinds has %q, which is none of %s", kind, strings.Join(allKinds, ","))
	}
	check(len(o.kinds) > 0, "-kinds names nothing to measure")
	check(o.maxJobRatio >= 0, "-max-job-ratio is %g, it must not be below 0", o.maxJobRatio)
	return errors.Join(wrong...)
}

func (o *options) has(part string) bool { return slices.Contains(o.only, part) }

// operatorUser is the operator as the API server knows it.
func (o *options) operatorUser() string {
	return "system:serviceaccount:" + o.operatorNS + ":" + o.operatorSA
}
