package plugin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"toolcall.dev/operator/api/v1alpha1"
)

// Fields by which the API server selects calls.
const (
	fieldName        = "metadata.name"
	fieldPhase       = "status.phase"
	fieldRequestedBy = "spec.requestedBy.username"
	fieldSession     = "spec.sessionRef.name"
)

// phases lists the phases in the order in which a call can reach them.
var phases = []string{"Pending", "Running", "Succeeded", "Failed", "Denied", "Cancelled"}

// callFilter are the flags that select calls. The API server applies all of them but --since.
type callFilter struct {
	selector    string
	session     string
	requestedBy string
	phases      []string
	since       time.Duration
}

func (f *callFilter) add(command *cobra.Command, c *cli) {
	flags := command.Flags()
	flags.StringVarP(&f.selector, "selector", "l", "", "label selector, e.g. team=search")
	flags.StringVar(&f.session, "session", "", "only calls in sessions of this name")
	flags.StringVar(&f.requestedBy, "requested-by", "", "only calls that this user created, e.g. system:serviceaccount:agents:agent")
	flags.StringSliceVar(&f.phases, "phase", nil, "only calls in these phases: "+strings.Join(phases, ", "))
	flags.DurationVar(&f.since, "since", 0, "only calls that were created within this time, e.g. 10m or 2h")
	must(command.RegisterFlagCompletionFunc("selector", cobra.NoFileCompletions))
	must(command.RegisterFlagCompletionFunc("session", c.complete(listSessions)))
	must(command.RegisterFlagCompletionFunc("requested-by", c.complete(listRequesters(command))))
	must(command.RegisterFlagCompletionFunc("phase", completeFrom(phases...)))
	must(command.RegisterFlagCompletionFunc("since", cobra.NoFileCompletions))
}

// validate checks the flags. The message says what would be right.
func (f *callFilter) validate() error {
	for _, phase := range f.phases {
		if !containsFold(phases, phase) {
			return fmt.Errorf("--phase %q: must be one of %s", phase, strings.Join(phases, ", "))
		}
	}
	if f.since < 0 {
		return fmt.Errorf("--since %s: must not be negative; it is how long ago, e.g. 10m", f.since)
	}
	if _, err := labels.Parse(f.selector); err != nil {
		return fmt.Errorf("--selector %q: must be a label selector, e.g. team=search: %w", f.selector, err)
	}
	return nil
}

// isSet reports whether the filter leaves anything out.
func (f *callFilter) isSet() bool {
	return f.selector != "" || f.session != "" || f.requestedBy != "" || len(f.phases) > 0 || f.since > 0
}

// listOptions is what the API server selects by.
func (f *callFilter) listOptions() metav1.ListOptions {
	var selectors []fields.Selector
	if f.session != "" {
		selectors = append(selectors, fields.OneTermEqualSelector(fieldSession, f.session))
	}
	if f.requestedBy != "" {
		selectors = append(selectors, fields.OneTermEqualSelector(fieldRequestedBy, f.requestedBy))
	}
	selectors = append(selectors, phaseSelectors(f.phases)...)
	return metav1.ListOptions{LabelSelector: f.selector, FieldSelector: fields.AndSelectors(selectors...).String()}
}

// phaseSelectors select calls in any of some phases, all calls for none. A field selector has no "or": it excludes the others.
func phaseSelectors(wanted []string) []fields.Selector {
	if len(wanted) == 0 {
		return nil
	}
	var selectors []fields.Selector
	for _, phase := range phases {
		if !containsFold(wanted, phase) {
			selectors = append(selectors, fields.OneTermNotEqualSelector(fieldPhase, phase))
		}
	}
	// A call that the operator hasn't seen yet has no phase, and counts as Pending.
	if !containsFold(wanted, string(v1alpha1.PhasePending)) {
		selectors = append(selectors, fields.OneTermNotEqualSelector(fieldPhase, ""))
	}
	return selectors
}

// isRecent reports whether a call was created within --since.
func (f *callFilter) isRecent(created metav1.Time, now time.Time) bool {
	return f.since == 0 || now.Sub(created.Time) <= f.since
}

func containsFold(list []string, text string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, text) })
}
