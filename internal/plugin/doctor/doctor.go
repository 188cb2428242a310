// Package doctor has the commands about an installation: doctor, which says what of it isn't well, and version. They change nothing.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

// Commands are the commands about an installation.
func Commands(c *cli.CLI) []*cobra.Command { return []*cobra.Command{newDoctor(c), newVersion(c)} }

const doctorLong = `Check whether everything that calls need is installed and healthy, and say what to do about what isn't.

It looks at the version of the cluster, the kinds, the admission policies and whether they are enforced, the aggregated API for
output, the operator and its version, the output store, the environments of the namespace and their policies, at what the
nodes' kernels and runtimes can do, as far as their versions tell it, and at whether their kubelets bound the
processes of a pod. A kubelet is asked only if you have permission to get nodes/proxy.

Nothing is changed: calls and sessions are only created in dry runs. Each line begins with one of these:

  OK       it is there, and healthy
  WARNING  calls run, with less than they could have
  PROBLEM  calls can't run, or not all of them
  UNKNOWN  you have no permission to see it

Run it as a cluster administrator to see everything. The exit code is 1 if there is a PROBLEM, or if the cluster can't be
reached, and 0 otherwise.`

const doctorExample = `  kubectl toolcall doctor
  kubectl toolcall doctor -A
  kubectl toolcall doctor -o json`

// States of a finding.
const (
	stateOK      = "OK"
	stateWarning = "WARNING"
	stateProblem = "PROBLEM"
	stateUnknown = "UNKNOWN"
)

// finding is what a check found.
type finding struct {
	// Check names what was looked at.
	Check  string `json:"check"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	// Advice says what to do, empty for nothing.
	Advice string `json:"advice,omitempty"`
}

func found(state, detail, advice string) finding {
	return finding{State: state, Detail: detail, Advice: advice}
}

func healthy(format string, args ...any) []finding {
	return []finding{found(stateOK, fmt.Sprintf(format, args...), "")}
}

func problem(advice, format string, args ...any) []finding {
	return []finding{found(stateProblem, fmt.Sprintf(format, args...), advice)}
}

// unseenFinding is what a read that failed tells: a missing permission leaves open what is there, another error is a problem.
func unseenFinding(what, advice string, err error) []finding {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return []finding{found(stateUnknown, "you have no permission to "+what, advice)}
	}
	return problem("look at what the error says, and run kubectl toolcall doctor again", "%s: %v", what, err)
}

// doctorReport is what doctor prints with -o.
type doctorReport struct {
	Healthy  bool      `json:"healthy"`
	Findings []finding `json:"findings"`
}

// doctor runs the checks.
type doctor struct {
	*cli.Cluster
	*observed
	allNamespaces bool
	formats       *cli.Formats
}

// environmentNamespace is where environments are looked for: empty for everywhere.
func (d *doctor) environmentNamespace() string {
	namespace, _ := d.Scope(d.allNamespaces)
	return namespace
}

func newDoctor(c *cli.CLI) *cobra.Command {
	d := &doctor{formats: cli.NewFormats()}
	command := &cobra.Command{
		Use:     "doctor",
		Short:   "Check whether everything is installed and healthy",
		Long:    doctorLong,
		Example: doctorExample,
		Args:    cli.RequireNothing,
		RunE: c.Connected(func(ctx context.Context, cluster *cli.Cluster, _ []string) error {
			d.Cluster = cluster
			return d.run(ctx)
		}),
	}
	command.Flags().BoolVarP(&d.allNamespaces, "all-namespaces", "A", false, "check the environments of all namespaces")
	return d.formats.Add(command)
}

func (d *doctor) run(ctx context.Context) (err error) {
	if d.observed, err = lookAt(ctx, d.Cluster); err != nil {
		return err
	}
	report := &doctorReport{}
	for _, check := range []struct {
		name string
		find func(context.Context) []finding
	}{
		{"cluster", d.checkCluster}, {"kinds", d.checkKinds}, {"admission", d.checkAdmission}, {"output API", d.checkOutputAPI},
		{"operator", d.checkOperator}, {"version", d.checkVersion}, {"output store", d.checkStore},
		{"environments", d.checkEnvironments}, {"policies", d.checkPolicies}, {"nodes", d.checkNodes},
		{"process IDs", d.checkProcessIDs},
	} {
		for _, f := range check.find(ctx) {
			f.Check = check.name
			report.Findings = append(report.Findings, f)
		}
	}
	report.Healthy = !slices.ContainsFunc(report.Findings, func(f finding) bool { return f.State == stateProblem })
	if err := d.print(report); err != nil {
		return err
	}
	if !report.Healthy {
		return &cli.ExitError{Code: cli.CodeError}
	}
	return nil
}

func (d *doctor) print(report *doctorReport) error {
	if d.formats.IsObject() {
		return d.formats.PrintReport(d.Out, "Diagnosis", "diagnosis", report)
	}
	w := cli.NewTable(d.Out)
	for _, f := range report.Findings {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.State, f.Check, terminal.SafeLine(f.Detail))
		if f.Advice != "" {
			fmt.Fprintf(w, "\t\tto do: %s\n", terminal.SafeLine(f.Advice))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(d.Out, report.summary())
	return nil
}

// summary counts the findings that aren't well.
func (r *doctorReport) summary() string {
	count := map[string]int{}
	for _, f := range r.Findings {
		count[f.State]++
	}
	var parts []string
	for _, state := range []string{stateProblem, stateWarning, stateUnknown} {
		if n := count[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	if len(parts) == 0 {
		return "Everything is well."
	}
	return strings.Join(parts, ", ")
}
