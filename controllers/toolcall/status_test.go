package toolcall

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/jobspec"
)

// writes are all statuses that the operator writes, and a call that each may be the first write of.
func writes() map[string]struct {
	change change
	make   func(*observation) *v1alpha1.ToolCallStatus
} {
	type write = struct {
		change change
		make   func(*observation) *v1alpha1.ToolCallStatus
	}
	refuse := func(denied bool) func(*observation) *v1alpha1.ToolCallStatus {
		return func(o *observation) *v1alpha1.ToolCallStatus {
			return o.refuse(&decide.Refusal{Reason: "Why", Message: "because", Denied: denied})
		}
	}
	none := func(*observation) {}
	return map[string]write{
		"undecided": {none, (*observation).undecided},
		"queued":    {decided, func(o *observation) *v1alpha1.ToolCallStatus { return o.pending(v1alpha1.ReasonQueued, "it waits") }},
		"accepted":  {withJob, (*observation).accepted},
		"suspended": {suspended, (*observation).accepted},
		"running": {withJob, func(o *observation) *v1alpha1.ToolCallStatus {
			return o.running(&v1alpha1.RunnerBinding{PodUID: "p", KeyHash: "k"}, wire.Hello{Pod: "pod", Node: "node"}, v1alpha1.PathCold)
		}},
		"denied":  {none, refuse(true)},
		"refused": {none, refuse(false)},
		"failed":  {withJob, func(o *observation) *v1alpha1.ToolCallStatus { return o.fail(v1alpha1.ReasonStartTimeout, "too late") }},
		"cancelled": {cancelled, func(o *observation) *v1alpha1.ToolCallStatus {
			return o.neverStarted(v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, "cancelled")
		}},
		"with result": {bound, func(o *observation) *v1alpha1.ToolCallStatus { return o.withResult(outcome(), 0) }},
		"lost":        {bound, func(o *observation) *v1alpha1.ToolCallStatus { return o.fail(v1alpha1.ReasonPodLost, "lost") }},
		"never started": {bound, func(o *observation) *v1alpha1.ToolCallStatus {
			return o.neverStarted(v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, "not started")
		}},
	}
}

// conditions are the statuses of the conditions, by type.
func conditions(s *v1alpha1.ToolCallStatus) map[string]metav1.ConditionStatus {
	all := map[string]metav1.ConditionStatus{}
	for _, c := range s.Conditions {
		all[c.Type] = c.Status
	}
	return all
}

func TestEveryConditionIsThereAfterTheFirstWrite(t *testing.T) {
	t.Parallel()
	type four struct{ accepted, started, finished, succeeded metav1.ConditionStatus }
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	want := map[string]four{
		"undecided": {unknown, no, no, unknown}, "queued": {yes, no, no, unknown}, "accepted": {yes, no, no, unknown},
		"suspended": {yes, no, no, unknown}, "running": {yes, yes, no, unknown}, "denied": {no, no, yes, no},
		"refused": {no, no, yes, no}, "failed": {yes, no, yes, no}, "cancelled": {no, no, yes, no},
		"with result": {yes, yes, yes, yes}, "lost": {yes, yes, yes, no}, "never started": {yes, yes, yes, no},
	}
	for name, w := range writes() {
		o := observed(w.change)
		got := conditions(w.make(o))
		expected := map[string]metav1.ConditionStatus{
			v1alpha1.ConditionAccepted: want[name].accepted, v1alpha1.ConditionStarted: want[name].started,
			v1alpha1.ConditionFinished: want[name].finished, v1alpha1.ConditionSucceeded: want[name].succeeded,
		}
		if diff := cmp.Diff(expected, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestAStatusIsMadeAndNothingElseChanged(t *testing.T) {
	t.Parallel()
	for name, w := range writes() {
		o := observed(w.change)
		before, call := *o, o.call.DeepCopy()
		decision := cmp.Diff(nil, o.decision)
		s := w.make(o)
		if s == &o.call.Status || o.call != before.call || o.job != before.job || cmp.Diff(nil, o.decision) != decision {
			t.Errorf("%s: the observation was changed", name)
		}
		if diff := cmp.Diff(call, o.call); diff != "" {
			t.Errorf("%s: the call was changed: %s", name, diff)
		}
		// What is written twice is written once.
		again := observed(w.change)
		if diff := cmp.Diff(s, w.make(again)); diff != "" {
			t.Errorf("%s: the second time: %s", name, diff)
		}
	}
}

// A pass that finds nothing new writes nothing, however much later it comes.
func TestAStatusIsStable(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"undecided", "queued", "accepted", "suspended"} {
		w := writes()[name]
		o := observed(w.change, said(func(o *observation) *v1alpha1.ToolCallStatus { w.change(o); return w.make(o) }), later(time.Hour))
		w.change(o)
		if diff := cmp.Diff(&o.call.Status, w.make(o)); diff != "" {
			t.Errorf("%s: an hour later: %s", name, diff)
		}
	}
}

func TestEachStatusSaysWhichGenerationItIsOf(t *testing.T) {
	t.Parallel()
	for name, w := range writes() {
		o := observed(w.change)
		o.call.Generation = 7
		s := w.make(o)
		for _, c := range s.Conditions {
			if c.ObservedGeneration != 7 && c.Status != metav1.ConditionTrue {
				t.Errorf("%s: %s is of generation %d", name, c.Type, c.ObservedGeneration)
			}
			if c.Reason == "" || c.Message == "" || c.LastTransitionTime.IsZero() {
				t.Errorf("%s: %s has no reason, message or time", name, c.Type)
			}
		}
		if s.ObservedGeneration != 7 {
			t.Errorf("%s is of generation %d", name, s.ObservedGeneration)
		}
	}
}

func TestAnEndSaysAllThatFollowsFromIt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change change
		make   func(*observation) *v1alpha1.ToolCallStatus
		phase  v1alpha1.Phase
		safe   *bool
	}{
		"denied":                  {func(*observation) {}, writes()["denied"].make, v1alpha1.PhaseDenied, nil},
		"failed before its start": {withJob, writes()["failed"].make, v1alpha1.PhaseFailed, ptr.To(true)},
		"cancelled before it":     {cancelled, writes()["cancelled"].make, v1alpha1.PhaseCancelled, ptr.To(true)},
		"lost after it":           {bound, writes()["lost"].make, v1alpha1.PhaseFailed, ptr.To(false)},
		"certainly not started":   {bound, writes()["never started"].make, v1alpha1.PhaseFailed, ptr.To(true)},
		"cancelled after it":      {bound, func(o *observation) *v1alpha1.ToolCallStatus { return o.end(v1alpha1.PhaseCancelled, "Why", "because") }, v1alpha1.PhaseCancelled, ptr.To(false)},
	} {
		s := tc.make(observed(tc.change))
		if s.Phase != tc.phase || cmp.Diff(tc.safe, s.RetrySafe) != "" {
			t.Errorf("%s: %s, safe to try again: %v", name, s.Phase, s.RetrySafe)
		}
		if s.Message == "" || s.Output != s.Message || s.Reason == "" || s.ExitCode != nil {
			t.Errorf("%s: reason %q, message %q, output %q, exit code %v", name, s.Reason, s.Message, s.Output, s.ExitCode)
		}
		if s.Timings.FinishedMilliseconds == nil || *s.Timings.FinishedMilliseconds != 1000 {
			t.Errorf("%s: timings %+v", name, s.Timings)
		}
		if finished := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionFinished); finished.Reason != s.Reason || finished.Message != s.Message {
			t.Errorf("%s: condition Finished: %+v", name, finished)
		}
		if s.Runner != nil && (s.Runner.Decision != "" || s.Runner.KeyHash != "key" || s.Runner.PodUID != "pod-uid") {
			t.Errorf("%s: the runner is %+v", name, s.Runner)
		}
	}
}

// The guards may say otherwise when the turn of a call comes, and somebody may edit one that was accepted.
func TestADenialIsWhatConditionAcceptedSays(t *testing.T) {
	t.Parallel()
	denial := &decide.Refusal{Reason: v1alpha1.ReasonAgentNotAllowed, Message: "no", Denied: true}
	for name, o := range map[string]*observation{
		"a call that waited for its turn": observed(said(func(o *observation) *v1alpha1.ToolCallStatus {
			decided(o)
			return o.pending(v1alpha1.ReasonQueued, "x")
		}), func(o *observation) { o.decision = nil }),
		"a call that has a Job":      observed(withJob, edited),
		"a call that has a runner":   observed(bound, edited),
		"a call nobody could decide": observed(said((*observation).undecided)),
	} {
		s := o.refuse(denial)
		accepted := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAccepted)
		if accepted.Status != metav1.ConditionFalse || accepted.Reason != v1alpha1.ReasonAgentNotAllowed || s.RetrySafe != nil {
			t.Errorf("%s: %+v", name, accepted)
		}
	}
}

func TestWhatWasAcceptedStaysSoWhateverEndsTheCall(t *testing.T) {
	t.Parallel()
	queued := said(func(o *observation) *v1alpha1.ToolCallStatus {
		decided(o)
		return o.pending(v1alpha1.ReasonQueued, "x")
	})
	o := observed(queued, func(o *observation) { o.decision = nil }, cancelled, later(time.Minute))
	s := o.neverStarted(v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, "cancelled")
	accepted := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAccepted)
	if accepted.Status != metav1.ConditionTrue || !accepted.LastTransitionTime.Time.Equal(start.Add(500*time.Millisecond)) {
		t.Errorf("got %+v", accepted)
	}
}

func TestARefusalNamesItsEnvironment(t *testing.T) {
	t.Parallel()
	refusal := &decide.Refusal{Reason: "Why", Message: "because", Environment: "env"}
	if s := observed().refuse(refusal); s.Environment == nil || s.Environment.Name != "env" || s.Environment.Trusted {
		t.Errorf("got %+v", s.Environment)
	}
	if s := observed(bound).refuse(refusal); !s.Environment.Trusted {
		t.Errorf("what was known is gone: %+v", s.Environment)
	}
	if s := observed().refuse(&decide.Refusal{Reason: "Why", Message: "because"}); s.Environment != nil {
		t.Errorf("without one: %+v", s.Environment)
	}
}

func TestTimingsAreMeasuredFromTheCallsCreation(t *testing.T) {
	t.Parallel()
	running := writes()["running"].make
	o := observed(withJob, later(time.Second))
	s := running(o)
	o.call.Status = *s
	o.now = o.now.Add(3 * time.Second)
	end := o.withResult(outcome(), 0)
	got := *end.Timings
	want := v1alpha1.CallTimings{AcceptedMilliseconds: ptr.To(int64(500)), StartedMilliseconds: ptr.To(int64(2000)), FinishedMilliseconds: ptr.To(int64(5000)), Path: v1alpha1.PathCold}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// A clock that went back makes nothing negative.
	if back := observed(withJob, later(-time.Hour)).fail("Why", "because"); *back.Timings.FinishedMilliseconds != 0 {
		t.Errorf("finished after %d ms", *back.Timings.FinishedMilliseconds)
	}
}

func TestARunningCallSaysWhereItRuns(t *testing.T) {
	t.Parallel()
	o := observed(withJob)
	binding := &v1alpha1.RunnerBinding{PodUID: "p", KeyHash: "k", Decision: "sealed"}
	s := o.running(binding, wire.Hello{Pod: "pod", Node: "node"}, v1alpha1.PathWarm)
	if s.Phase != v1alpha1.PhaseRunning || s.Pod != "pod" || s.Node != "node" || s.Job != o.job.Name || s.Runner != binding || s.Timings.Path != v1alpha1.PathWarm {
		t.Errorf("got %+v", s)
	}
	if s.Environment.Name != "env" || !s.Environment.Trusted || *s.TimeoutSeconds != 10 {
		t.Errorf("environment %+v, limit %v", s.Environment, s.TimeoutSeconds)
	}
}

func TestALimitIsRoundedUpToSeconds(t *testing.T) {
	t.Parallel()
	for milliseconds, seconds := range map[int64]int32{1: 1, 1000: 1, 1001: 2, 604800000: 604800} {
		o := observed(decided)
		o.decision.TimeoutMilliseconds = milliseconds
		if s := o.pending(v1alpha1.ReasonQueued, "x"); *s.TimeoutSeconds != seconds {
			t.Errorf("%d ms: %d s", milliseconds, *s.TimeoutSeconds)
		}
	}
}

// How long a call waits for something is told by when it began to, and one wait isn't counted for another.
func TestEachWaitBeginsAnew(t *testing.T) {
	t.Parallel()
	since := func(o *observation, reason string) time.Time {
		return meta.FindStatusCondition(o.pending(reason, "x").Conditions, v1alpha1.ConditionStarted).LastTransitionTime.Time
	}
	queued := said(func(o *observation) *v1alpha1.ToolCallStatus {
		decided(o)
		return o.pending(v1alpha1.ReasonQueued, "x")
	})
	began := start.Add(time.Second)
	if got := since(observed(queued, decided, later(time.Minute)), v1alpha1.ReasonQueued); !got.Equal(began) {
		t.Errorf("the same wait begins at %s", got)
	}
	if got := since(observed(queued, decided, later(time.Minute)), v1alpha1.ReasonNotStarted); !got.Equal(began.Add(time.Minute)) {
		t.Errorf("another wait begins at %s", got)
	}
}

func TestACallIsToldThatItsQueueMeansNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		wanted, given string
		says          bool
	}{"none": {"", "", false}, "its own": {"q", "q", false}, "none of it": {"q", "", true}, "another": {"q", "r", true}} {
		o := observed(withJob)
		o.call.Labels = map[string]string{jobspec.LabelQueue: tc.wanted}
		o.job.Labels = map[string]string{jobspec.LabelQueue: tc.given}
		message := meta.FindStatusCondition(o.accepted().Conditions, v1alpha1.ConditionAccepted).Message
		if strings.Contains(message, "means nothing") != tc.says {
			t.Errorf("%s: %q", name, message)
		}
	}
	// Of a Job that has ended the cache has no labels: nothing is known then.
	o := observed(withJob)
	o.call.Labels, o.job.Labels = map[string]string{jobspec.LabelQueue: "q"}, nil
	if message := acceptedMessage(o.call, o.job); message != "the call may run" {
		t.Errorf("without labels: %q", message)
	}
}

func TestASuspendedJobSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	o := observed(suspended)
	if got := suspendedMessage(o.job); !strings.Contains(got, "spec.suspend is false") {
		t.Errorf("without a queue: %q", got)
	}
	o.job.Labels = map[string]string{jobspec.LabelQueue: "q"}
	if got := suspendedMessage(o.job); !strings.Contains(got, `queue "q"`) {
		t.Errorf("in a queue: %q", got)
	}
}

func TestTheActionIsRecordedOnce(t *testing.T) {
	t.Parallel()
	o := observed()
	with := o.withAction(o.call)
	if o.call.Status.Action != nil {
		t.Error("the observation was changed")
	}
	if a := with.call.Status.Action; a == nil || a.Type != v1alpha1.ActionShell || a.Tool != "bash" || a.Summary != "make" {
		t.Errorf("got %+v", a)
	}
	other := o.call.DeepCopy()
	other.Spec.Shell.Command = "other"
	if again := with.withAction(other); again != with {
		t.Error("it was recorded again")
	}
	other.Spec.Shell = nil
	if unknown := o.withAction(other); unknown != o {
		t.Error("an action was recorded of a call that has none")
	}
	long := o.call.DeepCopy()
	long.Spec = v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: strings.Repeat("é", 300)}}
	if a := o.withAction(long).call.Status.Action; len(a.Tool) > v1alpha1.MaxToolBytes || a.Tool == "" || utf8.RuneCountInString(a.Summary) > 40 {
		t.Errorf("of a long name: %d and %d characters", utf8.RuneCountInString(a.Tool), utf8.RuneCountInString(a.Summary))
	}
}

// The operator knows no value of a Secret, so that it can't redact one: docs/secrets.md says where a value in the command stays.
func TestAValueInTheCommandItselfStaysInTheAction(t *testing.T) {
	t.Parallel()
	const value = "correct-horse-battery"
	for name, c := range map[string]struct {
		spec          v1alpha1.ToolCallSpec
		summary, tool string
	}{
		"a shell call": {v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "curl -u me:" + value}}, "curl -u me:" + value, "bash"},
		"an argument": {v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: "curl", Args: []string{"-u", "me:" + value}}},
			"curl -u me:" + value, "curl"},
		"a program":             {v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: value}}, value, value},
		"what is cut":           {v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: strings.Repeat("a", 30) + value}}, strings.Repeat("a", 30) + value[:10], "bash"},
		"what is further along": {v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: strings.Repeat("a", 40) + value}}, strings.Repeat("a", 40), "bash"},
	} {
		o := observed()
		whole := o.call.DeepCopy()
		whole.Spec = c.spec
		if a := o.withAction(whole).call.Status.Action; a == nil || a.Summary != c.summary || a.Tool != c.tool {
			t.Errorf("%s: %+v", name, a)
		}
	}
}
