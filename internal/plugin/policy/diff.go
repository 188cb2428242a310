package policy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/plugin/cli"
)

const diffLong = `Compare two policies by the examples of both: which of those calls come out otherwise?

OLD and NEW are files, - for standard input, or names of policies in the cluster. An argument with a slash, or that
ends in .yaml, .yml or .json, is a file.

The exit code is 0 if the policies could be compared, whether or not anything differs, and 1 otherwise.`

const diffExample = `  kubectl toolcall policy diff policy.yaml ./new/policy.yaml
  kubectl toolcall policy diff -o json policy.yaml policy.yaml`

func newDiff(c *cli.CLI) *cobra.Command {
	formats := cli.NewFormats()
	return formats.Add(&cobra.Command{
		Use:               "diff OLD NEW",
		Short:             "Compare two policies by their examples",
		Long:              diffLong,
		Example:           diffExample,
		Args:              requireFiles(2, 2, "two policies: files, or names of policies in the cluster"),
		ValidArgsFunction: completeFiles,
		RunE: func(command *cobra.Command, args []string) error {
			return diff(command.Context(), c, args[0], args[1], formats)
		},
	})
}

// difference is a call that comes out otherwise.
type difference struct {
	Example string `json:"example"`
	// Of says which of the policies has the example: old, new or both.
	Of  string `json:"of"`
	Old string `json:"old"`
	New string `json:"new"`
	// Message is why it is refused by the new policy, or by the old one.
	Message string `json:"message,omitempty"`
}

func diff(ctx context.Context, c *cli.CLI, before, after string, formats *cli.Formats) error {
	oldPolicy, err := find(ctx, c, before)
	if err != nil {
		return err
	}
	newPolicy, err := find(ctx, c, after)
	if err != nil {
		return err
	}
	differences, judged, err := compare(oldPolicy, newPolicy)
	if err != nil {
		return err
	}
	if formats.IsObject() {
		return formats.PrintReport(c.Out, "PolicyDiff", "diff", map[string]any{"judged": judged, "differences": differences})
	}
	c.Note(false, "%d examples judged, %d come out otherwise", judged, len(differences))
	if len(differences) == 0 {
		return nil
	}
	w := cli.NewTable(c.Out)
	w.Row("", "EXAMPLE", "OF", "OLD", "NEW", "MESSAGE")
	for _, d := range differences {
		w.Row("", d.Example, d.Of, d.Old, d.New, d.Message)
	}
	return w.Flush()
}

// compare judges the examples of both policies under both: those of the old one, and then those that only the new one has.
func compare(before, after *v1alpha1.ExecutionPolicy) (differences []difference, judged int, err error) {
	differences = []difference{}
	isIn := func(policy *v1alpha1.ExecutionPolicy, e *v1alpha1.PolicyExample) bool {
		return slices.ContainsFunc(policy.Spec.Examples, func(other v1alpha1.PolicyExample) bool { return isSameCall(e, &other) })
	}
	added := slices.DeleteFunc(slices.Clone(after.Spec.Examples), func(e v1alpha1.PolicyExample) bool { return isIn(before, &e) })
	for _, examples := range [][]v1alpha1.PolicyExample{before.Spec.Examples, added} {
		old, err := decide.JudgeExamples(before, examples)
		if err != nil {
			return nil, 0, fmt.Errorf("policy %s (old): %w", before.Name, err)
		}
		now, err := decide.JudgeExamples(after, examples)
		if err != nil {
			return nil, 0, fmt.Errorf("policy %s (new): %w", after.Name, err)
		}
		judged += len(old)
		for i := range old {
			a, b := &old[i], &now[i]
			if a.String() == b.String() {
				continue
			}
			of := "both"
			switch {
			case !isIn(before, a.Example):
				of = "new"
			case !isIn(after, a.Example):
				of = "old"
			}
			differences = append(differences, difference{a.Example.Name, of, a.String(), b.String(), cmp.Or(b.Message, a.Message)})
		}
	}
	return differences, judged, nil
}

// isSameCall says whether two examples have one name, call and caller.
func isSameCall(a, b *v1alpha1.PolicyExample) bool {
	var first, second any
	if json.Unmarshal(a.Call.Raw, &first) != nil || json.Unmarshal(b.Call.Raw, &second) != nil {
		return false
	}
	return a.Name == b.Name && reflect.DeepEqual(first, second) && reflect.DeepEqual(a.Caller, b.Caller)
}
