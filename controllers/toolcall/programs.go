package toolcall

import (
	"context"
	"math"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// setPrograms writes what the kernel held, what the call's processes executed and tried, and what was redacted.
func setPrograms(s *v1alpha1.ToolCallStatus, o *result.Outcome) {
	path := func(p string) string { return bounds.PathEnd(p, v1alpha1.MaxPathBytes) }
	paths := func(list result.Paths) []string {
		var out []string
		for _, p := range list {
			out = append(out, path(p))
		}
		return out
	}
	executed, moreExecuted := firstPrograms(o.Executed)
	for _, p := range executed {
		s.Executed = append(s.Executed, v1alpha1.ExecutedProgram{Path: path(p.Path), Count: p.Count})
	}
	refused, moreRefused := firstPrograms(o.Refused)
	for _, p := range refused {
		s.Refused = append(s.Refused, v1alpha1.RefusedProgram{Path: path(p.Path), Count: p.Count, Rule: p.Rule})
	}
	for _, r := range o.Redactions[:min(len(o.Redactions), result.MaxRedactions)] {
		s.Redactions = append(s.Redactions, v1alpha1.Redaction{Name: r.Name, Stream: v1alpha1.RedactedStream(r.Stream), Count: r.Count})
	}
	s.OmittedExecuted, s.OmittedRefused = sum(moreExecuted, o.MoreExecuted), sum(moreRefused, o.MoreRefused)
	if i := o.Isolation; i != nil {
		s.Isolation = &v1alpha1.Isolation{
			Network:     v1alpha1.HeldNetwork(i.Network),
			OpenUDP:     i.OpenUDP,
			NoNetwork:   bounds.Text(i.NoNetwork, result.MaxProgramPath),
			Way:         v1alpha1.IsolationWay(i.Way),
			LandlockABI: int32(min(max(i.LandlockABI, 0), math.MaxInt32)), Programs: i.Programs, Reads: i.Reads, Writes: i.Writes, Signals: i.Signals,
			NamesOnly: paths(i.NamesOnly), UnheldApplets: paths(i.UnheldApplets), Writable: paths(i.Writable), NotFound: paths(i.NotFound),
		}
	}
}

// noteApplets keeps for the environment which multi-call programs the call could start.
func (r *applier) noteApplets(o *observation, i *v1alpha1.Isolation) {
	if d := o.decision; d != nil && d.Rules != nil && d.Rules.Programs != nil && i != nil && i.Programs {
		found := host.Applets{Unheld: i.UnheldApplets, NamesOnly: i.NamesOnly}
		r.Nodes.SetApplets(types.NamespacedName{Namespace: o.call.Namespace, Name: d.Environment}, d.Rules, found)
	}
}

// setPod writes what the processes started as, and in which runtime class: that, the runner can't know.
func setPod(i *v1alpha1.Isolation, decision *decide.Decision, self *rules.Self) {
	if i == nil {
		return
	}
	if decision != nil {
		i.RuntimeClass, i.WeakPrograms = decision.RuntimeClass, decision.WeakPrograms
	}
	if self != nil {
		i.User, i.Seccomp, i.UserNamespace = ptr.To(int64(self.User)), v1alpha1.SeccompMode(self.Seccomp), self.UserNamespace
	}
}

// firstPrograms are those that a status lists, and how often the others came.
func firstPrograms(all result.Programs) (first result.Programs, others int64) {
	first = all[:min(len(all), v1alpha1.MaxPrograms)]
	for _, p := range all[len(first):] {
		others = sum(others, p.Count)
	}
	return first, others
}

// sum adds counts that a runner reports: any that aren't negative.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// recordPrograms writes the programs of a call that has just ended to the log, when they are more than its status lists.
func (r *applier) recordPrograms(ctx context.Context, o *observation, after *v1alpha1.ToolCall) {
	s := &after.Status
	if o.result == nil || s.OmittedExecuted == 0 && s.OmittedRefused == 0 {
		return
	}
	if !r.recordLimits.allow(after.Namespace, o.now) {
		metrics.CountDroppedRecord()
		return
	}
	policy := ""
	if o.decision != nil && o.decision.Rules != nil {
		policy = o.decision.Rules.Policy
	}
	outcome := &o.result.Outcome
	ctrl.LoggerFrom(ctx).Info("Programs of a call, more than its status lists",
		"uid", after.UID, "requester", visible(after.RequesterName()), "environment", s.Environment.Name, "policy", policy,
		"pod", s.Pod, "node", s.Node, "reason", s.Reason,
		"refused", visiblePrograms(outcome.Refused), "moreRefused", outcome.MoreRefused,
		"executed", visiblePrograms(outcome.Executed), "moreExecuted", outcome.MoreExecuted)
}

func visiblePrograms(list result.Programs) []result.Program {
	shown := make([]result.Program, len(list))
	for i, p := range list {
		shown[i] = result.Program{Path: visible(p.Path), Count: p.Count, Rule: p.Rule}
	}
	return shown
}

// visible escapes a text as in a string of Go, so that nothing in it moves a terminal's cursor, hides or reorders what
// stands beside it, and bounds it.
func visible(text string) string {
	quoted := strconv.Quote(text)
	return bounds.PathEnd(quoted[1:len(quoted)-1], v1alpha1.MaxPathBytes)
}
