package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"toolcall.dev/operator/api/v1alpha1"
)

// callTargets are the calls that a command works on: by name, by label, or all of the namespace.
type callTargets struct {
	selector string
	all      bool
}

func (t *callTargets) add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVarP(&t.selector, "selector", "l", "", "instead of names: the calls that this label selector selects, e.g. team=search")
	flags.BoolVar(&t.all, "all", false, "instead of names: all calls of the namespace")
	must(command.RegisterFlagCompletionFunc("selector", cobra.NoFileCompletions))
}

// validate accepts names, a selector or --all, and exactly one of them.
func (t *callTargets) validate(names []string) error {
	switch {
	case len(names) > 0 && (t.selector != "" || t.all):
		return errors.New("names can't be used together with -l or --all: use one of them")
	case t.selector != "" && t.all:
		return errors.New("-l and --all can't be used together: -l selects among all calls of the namespace")
	case len(names) == 0 && t.selector == "" && !t.all || slices.Contains(names, ""):
		return errors.New("specify the names of the calls, -l LABEL=VALUE or --all: \"kubectl toolcall get\" lists the calls")
	}
	selector, err := labels.Parse(t.selector)
	switch {
	case err != nil:
		return fmt.Errorf("--selector %q: must be a label selector, e.g. team=search: %w", t.selector, err)
	case t.selector != "" && selector.Empty():
		// It would select every call: a variable of a script may be empty.
		return fmt.Errorf("--selector %q: selects nothing in particular: specify LABEL=VALUE, or --all for all calls", t.selector)
	}
	return nil
}

// args validates the arguments of a command line once its flags are known.
func (t *callTargets) args(_ *cobra.Command, names []string) error { return t.validate(names) }

// isSelection reports whether the calls aren't named one by one.
func (t *callTargets) isSelection() bool { return t.all || t.selector != "" }

// resolve returns the names of the calls, oldest first where they weren't given, in the given phases, or in any for none.
func (t *callTargets) resolve(ctx context.Context, c *cluster, names []string, inPhases ...string) ([]string, error) {
	if !t.isSelection() {
		return names, nil
	}
	selected, err := t.selected(ctx, c, inPhases...)
	for i := range selected {
		names = append(names, selected[i].Name)
	}
	return names, err
}

// selected returns the metadata of the calls of a selection, oldest first.
func (t *callTargets) selected(ctx context.Context, c *cluster, inPhases ...string) (all []metav1.ObjectMeta, err error) {
	filter := callFilter{selector: t.selector, phases: inPhases}
	table, err := c.callTable(ctx, callQuery{namespace: c.namespace, options: filter.listOptions()})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(table.Rows, func(a, b metav1.TableRow) int {
		return rowCall(&a).CreationTimestamp.Compare(rowCall(&b).CreationTimestamp.Time)
	})
	for i := range table.Rows {
		all = append(all, rowCall(&table.Rows[i]).ObjectMeta)
	}
	return all, nil
}

// noneSelected says that a selection selects no call.
func (t *callTargets) noneSelected(c *cluster) error {
	if t.all {
		return fmt.Errorf("namespace %q has no calls: -n selects another namespace", c.namespace)
	}
	return fmt.Errorf("no call in namespace %q matches %q: \"kubectl toolcall get -o yaml\" shows the labels of calls, -n selects another namespace", c.namespace, t.selector)
}

// unfinished are the phases of calls that haven't finished.
var unfinished = []string{string(v1alpha1.PhasePending), string(v1alpha1.PhaseRunning)}
