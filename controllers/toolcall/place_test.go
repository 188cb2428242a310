package toolcall

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/queue"
)

func TestAQuestionIsAskedAgainLessAndLessOften(t *testing.T) {
	t.Parallel()
	for open, want := range map[time.Duration]time.Duration{
		-time.Second: soonestRetry, 0: soonestRetry, time.Second: soonestRetry, 4 * time.Second: 2 * time.Second, time.Minute: latestRetry, time.Hour: latestRetry,
	} {
		if got := retryAfter(open); got != want {
			t.Errorf("open for %s: again after %s, want %s", open, got, want)
		}
	}
}

// openQuestion is what stays undecided in an environment whose calls may wait for a minute.
func openQuestion() *decide.Undecided {
	env := newDecision().In
	env.Spec.StartTimeoutSeconds = ptr.To(int32(60))
	return &decide.Undecided{
		Cause: errors.New("down"), Environment: env,
		Otherwise: &decide.Refusal{Reason: v1alpha1.ReasonGuardError, Message: "nobody answered", Denied: true, Environment: "env"},
	}
}

func TestAnUndecidedCallWaitsAsLongAsForItsStart(t *testing.T) {
	t.Parallel()
	undecided := said((*observation).undecided)
	for name, tc := range map[string]struct {
		o     *observation
		wake  time.Duration
		ended bool
	}{
		"at first":                {observed(), soonestRetry, false},
		"a moment later":          {observed(undecided, later(time.Second)), soonestRetry, false},
		"after a while":           {observed(undecided, later(8*time.Second)), 4 * time.Second, false},
		"after a long while":      {observed(undecided, later(40*time.Second)), latestRetry, false},
		"shortly before its time": {observed(undecided, later(58*time.Second)), 2 * time.Second, false},
		"when its time is up":     {observed(undecided, later(60*time.Second)), 0, true},
		"long after an operator's absence, at once": {observed(undecided, later(time.Hour), justHeard), latestRetry, false},
		"long after an operator's absence, tried":   {observed(undecided, later(time.Hour), justHeard, later(dispatch.ReconnectWait)), 0, true},
		"after it was accepted and waited": {observed(said(func(o *observation) *v1alpha1.ToolCallStatus {
			decided(o)
			return o.pending(v1alpha1.ReasonQueued, "x")
		}), later(time.Hour)), soonestRetry, false},
	} {
		e := tc.o.postpone(context.Background(), openQuestion())
		if e.wake != tc.wake || (e.status.Phase == v1alpha1.PhaseDenied) != tc.ended || e.create != nil || len(e.messages) != 0 {
			t.Errorf("%s: looked at after %s, phase %s", name, e.wake, e.status.Phase)
		}
		accepted := meta.FindStatusCondition(e.status.Conditions, v1alpha1.ConditionAccepted)
		if want := map[bool]metav1.ConditionStatus{true: metav1.ConditionFalse, false: metav1.ConditionUnknown}[tc.ended]; accepted.Status != want {
			t.Errorf("%s: condition Accepted is %s", name, accepted.Status)
		}
	}
}

func TestACallIsAcceptedWhenItWasFirstAllowed(t *testing.T) {
	t.Parallel()
	if got := acceptedAt(observed()); !got.Equal(start.Add(time.Second)) {
		t.Errorf("a new call: %s", got)
	}
	waited := observed(said(func(o *observation) *v1alpha1.ToolCallStatus {
		decided(o)
		return o.pending(v1alpha1.ReasonQueued, "x")
	}), later(time.Hour))
	if got := acceptedAt(waited); !got.Equal(start.Add(500 * time.Millisecond)) {
		t.Errorf("a call that waited for its turn: %s", got)
	}
	if got := acceptedAt(observed(said((*observation).undecided), later(time.Minute))); !got.Equal(start.Add(time.Minute + time.Second)) {
		t.Errorf("a call that was undecided: %s", got)
	}
}

// Most calls have started within a second: then both are one write.
func TestACallSaysThatItWasAcceptedWithItsStart(t *testing.T) {
	t.Parallel()
	job := func(suspend bool) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Suspend: &suspend}}
	}
	queued := said(func(o *observation) *v1alpha1.ToolCallStatus {
		decided(o)
		return o.pending(v1alpha1.ReasonQueued, "x")
	})
	for name, tc := range map[string]struct {
		o      *observation
		job    *batchv1.Job
		reason string
	}{
		"a new call":                     {observed(decided), job(false), ""},
		"a call that has said something": {observed(queued, decided), job(false), v1alpha1.ReasonNotStarted},
		"a call that a queue holds back": {observed(decided), job(true), v1alpha1.ReasonSuspended},
		"a call that waited, held back":  {observed(queued, decided), job(true), v1alpha1.ReasonSuspended},
	} {
		e := tc.o.launch(tc.job)
		if e.create != tc.job || e.credential != tc.job || e.decided != tc.o || e.wake != acceptWait {
			t.Errorf("%s: %+v", name, e)
		}
		if (e.status == nil) != (tc.reason == "") {
			t.Errorf("%s: it says %+v", name, e.status)
		}
		if e.status != nil && (e.status.Job != "job" || meta.FindStatusCondition(e.status.Conditions, v1alpha1.ConditionStarted).Reason != tc.reason) {
			t.Errorf("%s: it says %+v", name, e.status)
		}
	}
}

// refusals are answers of the API server that stay the same however often it is asked.
func refusals() map[string]error {
	kind := schema.GroupResource{Resource: "jobs"}
	return map[string]error{
		"forbidden": apierrors.NewForbidden(kind, "job", errors.New("no")), "invalid": apierrors.NewInvalid(schema.GroupKind{Kind: "Job"}, "job", nil),
		"a bad request": apierrors.NewBadRequest("no"), "too large": apierrors.NewRequestEntityTooLargeError("no"),
	}
}

// troubles are answers that may be others the next time.
func troubles() map[string]error {
	kind := schema.GroupResource{Resource: "jobs"}
	return map[string]error{
		"a broken connection": errors.New("connection refused"), "a timeout": apierrors.NewTimeoutError("slow", 1), "a conflict": apierrors.NewConflict(kind, "job", nil),
		"too many requests": apierrors.NewTooManyRequests("slow", 1), "a broken webhook": apierrors.NewInternalError(errors.New("webhook")),
		"no namespace": apierrors.NewNotFound(kind, "job"), "a deadline": context.DeadlineExceeded,
	}
}

func TestAJobThatIsRefusedEndsItsCall(t *testing.T) {
	t.Parallel()
	for name, cause := range refusals() {
		e := observed(decided).createFailed(context.Background(), "the Job", nil, cause)
		if e.status.Phase != v1alpha1.PhaseFailed || e.status.Reason != v1alpha1.ReasonPodRejected || !*e.status.RetrySafe || e.wake != 0 {
			t.Errorf("%s: %+v", name, e.status)
		}
		job := observed(withJob).job
		e = observed(decided).createFailed(context.Background(), "the Secret", job, cause)
		if e.status.Phase != v1alpha1.PhaseFailed || e.status.Reason != v1alpha1.ReasonPodRejected || e.status.Job != job.Name || len(e.remove) != 1 || e.remove[0] != job {
			t.Errorf("the Secret: %s: %+v", name, e)
		}
	}
}

func TestAJobThatCannotBeMadeNowIsTriedAgainForAsLongAsTheCallMayWait(t *testing.T) {
	t.Parallel()
	failing := said(func(o *observation) *v1alpha1.ToolCallStatus {
		decided(o)
		return o.createFailed(context.Background(), "the Job", nil, errors.New("x")).status
	})
	queued := said(func(o *observation) *v1alpha1.ToolCallStatus {
		decided(o)
		return o.pending(v1alpha1.ReasonQueued, "x")
	})
	failed := func(o *observation) {
		o.call.Status = *o.createFailed(context.Background(), "the Job", nil, errors.New("x")).status
	}
	fresh := func(o *observation) { decided(o); o.decision.AcceptedMicroseconds = o.now.UnixMicro() }
	for cause, err := range troubles() {
		for name, tc := range map[string]struct {
			o     *observation
			wake  time.Duration
			ended bool
		}{
			"at first":                            {observed(decided), soonestRetry, false},
			"after a while":                       {observed(failing, decided, later(8*time.Second)), 4 * time.Second, false},
			"shortly before its time":             {observed(failing, decided, later(59*time.Second)), time.Second, false},
			"when its time is up":                 {observed(failing, decided, later(60*time.Second)), 0, true},
			"after an operator's absence":         {observed(failing, decided, later(time.Hour), justHeard), latestRetry, false},
			"a while after an operator's absence": {observed(failing, decided, later(time.Hour), justHeard, later(dispatch.ReconnectWait)), 0, true},
			"after a wait for its turn":           {observed(queued, decided, later(time.Hour)), soonestRetry, false},
			"after a wait for a guard":            {observed(said((*observation).undecided), later(59*time.Second), fresh), soonestRetry, false},
			"a while after one for a guard":       {observed(said((*observation).undecided), later(59*time.Second), fresh, failed, later(8*time.Second)), 4 * time.Second, false},
		} {
			e := tc.o.createFailed(context.Background(), "the Job", nil, err)
			if e.wake != tc.wake || (e.status.Phase == v1alpha1.PhaseFailed) != tc.ended {
				t.Errorf("%s, %s: looked at after %s, %s", cause, name, e.wake, e.status.Phase)
			}
			started := meta.FindStatusCondition(e.status.Conditions, v1alpha1.ConditionStarted)
			if started.Reason != v1alpha1.ReasonNotStarted || !tc.ended && !strings.Contains(started.Message, err.Error()) {
				t.Errorf("%s, %s: %+v", cause, name, started)
			}
		}
	}
}

// The Job isn't recorded before its Secret is there, so that the next pass makes it.
func TestAMissingTokenIsMadeInTheNextPass(t *testing.T) {
	t.Parallel()
	for cause, err := range troubles() {
		o := observed(withJob)
		e := o.createFailed(context.Background(), "the Secret", o.job, err)
		if e.status.Phase != v1alpha1.PhasePending || e.status.Job != "" || e.wake != soonestRetry || len(e.remove) != 0 {
			t.Errorf("%s: %+v", cause, e)
		}
	}
}

func TestARunnerIsRecordedBeforeTheCommandIsSent(t *testing.T) {
	t.Parallel()
	op := startOperator(t)
	session, _ := op.connect(t, "job", "")
	r := NewReconciler(Options{Identity: op.identity})
	o := observed(withJob)
	for path, pool := range map[v1alpha1.Path]string{v1alpha1.PathCold: "", v1alpha1.PathWarm: "env"} {
		job := o.job.DeepCopy()
		job.Annotations = map[string]string{jobspec.AnnotationPool: pool}
		e, err := r.bindTo(t.Context(), o, o.call, job, session)
		if err != nil {
			t.Fatal(err)
		}
		s := e.status
		if s.Phase != v1alpha1.PhaseRunning || s.Runner.PodUID != "job-pod-uid" || s.Runner.KeyHash != session.KeyHash() || s.Pod != "job-pod" || s.Job != job.Name || s.Timings.Path != path {
			t.Errorf("%s: recorded is %+v", path, s)
		}
		if len(e.messages) != 1 || e.messages[0].to != session || e.messages[0].assign == nil || e.messages[0].assign.CallUID != "call-uid" || !e.release {
			t.Errorf("%s: sent is %+v", path, e.messages)
		}
		if wake := map[string]time.Duration{"": 0, "env": adoptWait}[pool]; e.wake != wake {
			t.Errorf("%s: looked at after %s", path, e.wake)
		}
		bound := o.call.DeepCopy()
		bound.Status = *s
		kept := bound.Status.Runner
		if d, ok := jobspec.UnsealDecision(op.identity, kept.Decision, sealContext(bound, kept)...); !ok || d.Environment != "env" || d.TimeoutMilliseconds != 10_000 {
			t.Errorf("%s: the decision that is kept is %+v", path, d)
		}
	}
}

// What waits was admitted by the environment's first queue alone.
func TestACallThatChoosesItsQueueTakesNoWaitingPod(t *testing.T) {
	t.Parallel()
	for queue, served := range map[string]bool{"": true, "slow": true, "fast": false, "unknown": true} {
		op := startOperator(t)
		op.connect(t, "job", "")
		o := observed(decided)
		env := o.decision.In
		env.Spec.WarmPool, env.Spec.Queues = &v1alpha1.WarmPool{Size: 1}, []string{"slow", "fast"}
		o.call.Labels = map[string]string{jobspec.LabelQueue: queue}
		r := NewReconciler(Options{Hosts: host.NewRegistry(op.hub)})
		_, template, err := host.PoolTemplate(env, nil, nil, nil, r.Runtime)
		if err != nil {
			t.Fatal(err)
		}
		r.Hosts.Offer("job-uid", template)
		if runner, err := r.claimWaiting(o, o.call); (runner != nil) != served || err != nil {
			t.Errorf("queue %q: %v, %v", queue, runner, err)
		}
	}
}

func TestADecisionThatIsTooLargeEndsTheCall(t *testing.T) {
	t.Parallel()
	op := startOperator(t)
	session, _ := op.connect(t, "job", "")
	o := observed(withJob)
	o.decision.Plan.Layers[0].Vars[0].Value = strings.Repeat("x", decide.MaxStoredBytes)
	e, err := NewReconciler(Options{Identity: op.identity}).bindTo(t.Context(), o, o.call, o.job, session)
	if err != nil || e.status.Reason != v1alpha1.ReasonInvalidEnvironment || len(e.messages) != 0 || e.status.Runner != nil {
		t.Errorf("got %+v, %v", e, err)
	}
}

// A call that the cache has without its input must not be handed over as it is.
func TestACallWithoutItsInputIsNotHandedOver(t *testing.T) {
	t.Parallel()
	op := startOperator(t)
	session, _ := op.connect(t, "job", "")
	o := observed(withJob)
	slim := o.call.DeepCopy()
	slim.Spec.Shell = nil
	if e, err := NewReconciler(Options{Identity: op.identity}).bindTo(t.Context(), o, slim, o.job, session); err == nil || e.status != nil || len(e.messages) != 0 {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestADecisionInTheStatusIsTheOperatorsAndOfThisCallAndRunner(t *testing.T) {
	t.Parallel()
	identity := newIdentity(t)
	sealed := func() *v1alpha1.ToolCall {
		call := observed(bound).call
		runner := call.Status.Runner
		var err error
		if runner.Decision, err = jobspec.Seal(identity, newDecision(), sealContext(call, runner)...); err != nil {
			t.Fatal(err)
		}
		return call
	}
	read := func(by *dispatch.Identity, call *v1alpha1.ToolCall) *decide.Decision {
		d, _ := jobspec.UnsealDecision(by, call.Status.Runner.Decision, sealContext(call, call.Status.Runner)...)
		return d
	}
	call := sealed()
	raw, err := json.Marshal(call)
	if err != nil {
		t.Fatal(err)
	}
	if d := read(identity, call); d == nil || d.Plan.Layers[0].Vars[0] != (envresolve.Var{Name: "D", Value: "secret-literal"}) {
		t.Errorf("read back is %+v", d)
	}
	if strings.Contains(string(raw), "secret-literal") || strings.Contains(string(raw), "argvPrefix") {
		t.Error("who may read the call can read the decision")
	}
	for name, change := range map[string]func(*v1alpha1.ToolCall){
		"another call":            func(c *v1alpha1.ToolCall) { c.UID = "x" },
		"another name":            func(c *v1alpha1.ToolCall) { c.Name = "x" },
		"another namespace":       func(c *v1alpha1.ToolCall) { c.Namespace = "x" },
		"another pod":             func(c *v1alpha1.ToolCall) { c.Status.Runner.PodUID = "x" },
		"another runner":          func(c *v1alpha1.ToolCall) { c.Status.Runner.KeyHash = "x" },
		"nothing":                 func(c *v1alpha1.ToolCall) { c.Status.Runner.Decision = "" },
		"a decision in the clear": func(c *v1alpha1.ToolCall) { c.Status.Runner.Decision = `{"environment":"env"}` },
		"a shorter one":           func(c *v1alpha1.ToolCall) { c.Status.Runner.Decision = c.Status.Runner.Decision[1:] },
		"a Job's":                 func(c *v1alpha1.ToolCall) { c.Status.Runner.Decision = jobsDecision(t, identity) },
		"a token":                 func(c *v1alpha1.ToolCall) { c.Status.Runner.Decision = identity.Token("ns", "call", "call-uid") },
	} {
		c := sealed()
		change(c)
		if d := read(identity, c); d != nil {
			t.Errorf("%s: %+v", name, d)
		}
	}
	own := sealed()
	if d := read(newIdentity(t), own); d != nil {
		t.Errorf("another operator's: %+v", d)
	}
}

// jobsDecision is a decision that was sealed for the Job of the same call.
func jobsDecision(t *testing.T, identity *dispatch.Identity) string {
	t.Helper()
	job, err := jobspec.Build(jobspec.Input{Call: observed().call, Decision: newDecision(), Sealer: identity})
	if err != nil {
		t.Fatal(err)
	}
	return job.Annotations[jobspec.AnnotationDecision]
}

func TestACallsPlaceInTheOrder(t *testing.T) {
	t.Parallel()
	call := observed().call
	call.ResourceVersion = "12345"
	want := queue.Holder{Name: callIn("ns", "call"), UID: "call-uid", User: "alice", Created: start, Revision: 12345}
	if diff := cmp.Diff(want, holderOf(call)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	call.ResourceVersion, call.Spec.RequestedBy = "opaque", nil
	if got := holderOf(call); got.Revision != 0 || got.User != "" {
		t.Errorf("got %+v", got)
	}
}

func TestACallSaysThatItWaitsForAPlace(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]bool{v1alpha1.ReasonQueued: true, v1alpha1.ReasonNotStarted: false, v1alpha1.ReasonSuspended: false} {
		o := observed(said(func(o *observation) *v1alpha1.ToolCallStatus { decided(o); return o.pending(reason, "x") }))
		if isQueued(o.call) != want {
			t.Errorf("%s: %t", reason, !want)
		}
	}
	if isQueued(observed().call) || isQueued(observed(bound).call) {
		t.Error("a call that says nothing of it waits")
	}
	env := newDecision().In
	if maxConcurrent(env) != 0 {
		t.Error("an environment without a limit has one")
	}
	if env.Spec.MaxConcurrentCalls = ptr.To(int32(3)); maxConcurrent(env) != 3 {
		t.Error("the limit is another")
	}
}
