package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

// options are what the command line says.
type options struct {
	rounds      int
	parallel    int
	image       string
	json        string
	auditLog    string
	operatorNS  string
	operatorSA  string
	maxJobRatio float64
	latencies   bool
}

func parse(args []string, usage io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(usage)
	fs.IntVar(&o.rounds, "n", 30, "rounds: a bare Pod, a bare Job and a ToolCall each")
	fs.IntVar(&o.parallel, "parallel", 0, "afterwards, run this many calls at the same time and say how many end per second; 0 for not")
	fs.StringVar(&o.image, "image", "toolcall.dev/tools:dev", "image that all three run in; it must have true in its PATH")
	fs.StringVar(&o.json, "json", "bin/bench.json", "file for all samples and figures; empty for none")
	fs.StringVar(&o.auditLog, "audit-log", "", "the API server's audit log, to count the operator's writes by resource; without it they are counted by method, from the operator's metrics")
	fs.StringVar(&o.operatorNS, "operator-namespace", "toolcall-system", "namespace of the operator")
	fs.StringVar(&o.operatorSA, "operator-account", "toolcall-operator", "service account of the operator, and the name in its pods' label app.kubernetes.io/name")
	fs.Float64Var(&o.maxJobRatio, "max-job-ratio", 0, "fail when the call's p50 is more than this times the bare Job's; 0 for never")
	fs.BoolVar(&o.latencies, "latencies", true, "also show the time to the process's start, and from its end to Finished; the clocks of this machine and the node must agree")
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
	if o.rounds < 1 {
		wrong = append(wrong, fmt.Errorf("-n is %d, it must be at least 1", o.rounds))
	}
	if o.parallel < 0 || o.parallel > 200 {
		wrong = append(wrong, fmt.Errorf("-parallel is %d, it must be between 0 and 200", o.parallel))
	}
	return errors.Join(wrong...)
}

// operatorUser is the operator as the API server knows it.
func (o *options) operatorUser() string {
	return "system:serviceaccount:" + o.operatorNS + ":" + o.operatorSA
}
