package policy

import (
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/plugin/cli"
)

const testLong = `Judge the examples of policies in files, without a cluster: does each come out as it expects?

The table shows each example with what it expects and what it came out as. Messages on standard error say why an
example fails. Other objects in the files are left out. The operator judges the same examples when a policy changes:
nothing runs under a policy while one of them fails.

The exit code is 0 if all examples come out as they expect, and 1 if one doesn't, if a policy doesn't compile, or if
there is no example.`

const testExample = `  kubectl toolcall policy test policy.yaml
  kubectl toolcall policy test -o json policy.yaml
  kubectl toolcall policy test - < policy.yaml`

func newTest(c *cli.CLI) *cobra.Command {
	formats := cli.NewFormats()
	return formats.Add(&cobra.Command{
		Use:               "test FILE...",
		Short:             "Judge the examples of a policy in a file",
		Long:              testLong,
		Example:           testExample,
		Args:              requireFiles(1, math.MaxInt, "the files of the policies, - for standard input"),
		ValidArgsFunction: completeFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			var policies []v1alpha1.ExecutionPolicy
			for _, name := range args {
				more, err := readFile(name, c.In)
				if err != nil {
					return err
				}
				policies = append(policies, more...)
			}
			return test(c, policies, formats)
		},
	})
}

// exampleReport is an example in what test prints with -o.
type exampleReport struct {
	Policy   string `json:"policy"`
	Example  string `json:"example"`
	Expected string `json:"expected"`
	Got      string `json:"got"`
	Message  string `json:"message,omitempty"`
	Met      bool   `json:"met"`
}

func test(c *cli.CLI, policies []v1alpha1.ExecutionPolicy, formats *cli.Formats) error {
	var all []exampleReport
	failed := 0
	for i := range policies {
		policy := &policies[i]
		outcomes, err := decide.JudgeExamples(policy, policy.Spec.Examples)
		if err != nil {
			return fmt.Errorf("policy %s: %w", policy.Name, err)
		}
		if len(outcomes) == 0 {
			return fmt.Errorf("policy %s has no spec.examples to judge", policy.Name)
		}
		for i := range outcomes {
			o := &outcomes[i]
			all = append(all, exampleReport{policy.Name, o.Example.Name, o.Expected(), o.String(), o.Message, o.Met})
			if !o.Met {
				failed++
				if o.Message != "" {
					c.Note(formats.IsObject(), "%s: example %s: %s", policy.Name, o.Example.Name, o.Message)
				}
			}
		}
	}
	if err := printExamples(c.Out, all, len(policies) > 1, formats); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d examples come out otherwise than they expect", failed, len(all))
	}
	return nil
}

func printExamples(out io.Writer, all []exampleReport, several bool, formats *cli.Formats) error {
	if formats.IsObject() {
		return formats.PrintReport(out, "PolicyTest", "test", map[string]any{"examples": all})
	}
	w := cli.NewTable(out)
	w.Namespaces = several
	w.Row("POLICY", "EXAMPLE", "EXPECTED", "GOT", "RESULT")
	for _, e := range all {
		w.Row(e.Policy, e.Example, e.Expected, e.Got, map[bool]string{true: "ok", false: "FAILED"}[e.Met])
	}
	return w.Flush()
}
