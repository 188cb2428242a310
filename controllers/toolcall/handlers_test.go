package toolcall

import (
	"context"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/result"
)

// handled are the effects of the handler of an observation's stage, which has to be that one.
func (c *cluster) handled(t *testing.T, stage Stage, o *observation) effects {
	t.Helper()
	if got := stageOf(o); got != stage {
		t.Fatalf("the call is %s, not %s", got, stage)
	}
	e, err := c.runStage(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.did) != 0 {
		t.Errorf("the handler of %s wrote: %q", stage, c.did)
	}
	return e
}

func with(session *dispatch.Runner) change { return func(o *observation) { o.runner = session } }

// told says what a runner is told: its refusal, or what else it is.
func told(e effects, session *dispatch.Runner) string {
	for _, m := range e.messages {
		switch {
		case m.to != session:
		case m.assign != nil:
			return "assign " + m.assign.CallUID
		case m.ack != "":
			return "ack " + m.ack
		case m.stop != "":
			return "stop " + m.stop
		default:
			return "refuse: " + m.refuse
		}
	}
	return ""
}

func TestACallThatIsDeletedLetsGoOfItsRunners(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	own, _ := c.op.connect(t, "own", "call-uid")
	e := c.handled(t, Deleting, observed(bound, with(own), func(o *observation) { o.call.DeletionTimestamp = ptr.To(metav1.Now()) }))
	if told(e, own) != "refuse: the ToolCall is being deleted" || !e.forgetResult || e.status != nil || len(e.remove) != 0 {
		t.Errorf("got %+v", e)
	}
}

func TestACallThatWaitsForItsPlaceIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	e := c.handled(t, Queued, observed(func(o *observation) { o.queued = true }))
	if e.status != nil || e.wake != 0 || e.create != nil {
		t.Errorf("got %+v", e)
	}
}

func TestACancelBeforeTheStartEndsTheCallAndLetsItsRunnersGo(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	own, _ := c.op.connect(t, "own", "")
	waiting, _ := c.op.connect(t, "waiting", "")
	for name, tc := range map[string]struct {
		o       *observation
		phase   v1alpha1.Phase
		removed bool
		own     string
		waiting string
	}{
		"a new call":                   {observed(cancelled), v1alpha1.PhaseCancelled, false, "", ""},
		"a call with its Job":          {observed(withJob, cancelled), v1alpha1.PhaseCancelled, true, "", ""},
		"a call whose runner has come": {observed(withJob, with(own), cancelled), v1alpha1.PhaseCancelled, true, "refuse: the call was cancelled", ""},
		"a call whose claim came true": {observed(warmBound, with(waiting), cancelled), v1alpha1.PhaseCancelled, true, "", "refuse: the call was cancelled"},
		"a recorded runner":            {observed(bound, withJob, with(own), cancelled), v1alpha1.PhaseCancelled, true, "refuse: the call was cancelled", ""},
		"an edited call":               {observed(withJob, with(own), edited), v1alpha1.PhaseDenied, true, "refuse: the call was edited", ""},
		"a cancelled and edited call":  {observed(withJob, cancelled, func(o *observation) { o.call.Generation = 7 }), v1alpha1.PhaseCancelled, true, "", ""},
	} {
		e := c.handled(t, Cancelling, tc.o)
		if e.status.Phase != tc.phase || !e.release || (len(e.remove) == 1) != tc.removed {
			t.Errorf("%s: %s, removed %d", name, e.status.Phase, len(e.remove))
		}
		if tc.phase == v1alpha1.PhaseCancelled && !*e.status.RetrySafe {
			t.Errorf("%s: it isn't said that the command never started", name)
		}
		if told(e, own) != tc.own || told(e, waiting) != tc.waiting || len(e.messages) > 1 {
			t.Errorf("%s: told %q and %q in %d messages", name, told(e, own), told(e, waiting), len(e.messages))
		}
	}
}

func TestAResultIsRecordedAndThenAcknowledged(t *testing.T) {
	t.Parallel()
	c := newCluster(t, observed().call)
	session, _ := c.op.connect(t, "own", "call-uid")
	reports := func(changes ...func(*result.Outcome)) change {
		return func(o *observation) { o.result = outcome(changes...) }
	}
	stopped := func(o *result.Outcome) { o.Reason, o.ExitCode = result.CancelRequested, nil }
	broken := func(o *result.Outcome) { o.ExitCode = result.Exit(7) }
	for name, tc := range map[string]struct {
		o       *observation
		phase   v1alpha1.Phase
		told    string
		adopt   bool
		removed bool
	}{
		"of a pod of its own":         {observed(bound, withJob, with(session), reports()), v1alpha1.PhaseSucceeded, "ack call-uid", false, false},
		"of a waiting pod":            {observed(warmBound, with(session), reports()), v1alpha1.PhaseSucceeded, "ack call-uid", true, false},
		"of a runner that went":       {observed(bound, withJob, reports()), v1alpha1.PhaseSucceeded, "", false, false},
		"of a command that was ended": {observed(bound, withJob, with(session), reports(stopped)), v1alpha1.PhaseCancelled, "ack call-uid", false, true},
		"after a cancel too late":     {observed(bound, withJob, with(session), cancelled, reports()), v1alpha1.PhaseSucceeded, "ack call-uid", false, false},
		"that isn't valid":            {observed(bound, withJob, with(session), reports(broken)), "", "refuse: the result isn't valid: reason Completed doesn't go with its exit code", false, false},
		"that isn't valid, gone":      {observed(bound, withJob, reports(broken)), "", "", false, false},
	} {
		e := c.handled(t, Reported, tc.o)
		phase := v1alpha1.Phase("")
		if e.status != nil {
			phase = e.status.Phase
		}
		if phase != tc.phase || told(e, session) != tc.told || (e.adopt != nil) != tc.adopt || (len(e.remove) == 1) != tc.removed || !e.forgetResult {
			t.Errorf("%s: %s, told %q, adopted: %t, removed %d", name, phase, told(e, session), e.adopt != nil, len(e.remove))
		}
		if recorded := e.reported == metrics.ReportRecorded; recorded != (tc.phase != "") {
			t.Errorf("%s: counted as %q", name, e.reported)
		}
		// What is written or told has the call looked at again.
		if e.status == nil && len(e.messages) == 0 && e.wake == 0 {
			t.Errorf("%s: nothing has the call looked at again", name)
		}
	}
}

func TestACommandIsHandedOverAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	session, _ := c.op.connect(t, "own", "")
	e := c.handled(t, Bound, observed(warmBound, with(session), later(time.Hour)))
	if told(e, session) != "assign call-uid" || e.status != nil || e.adopt == nil {
		t.Errorf("got %+v", e)
	}
	// Nobody decides again: what can't be read any more ends the call, and its runner runs nothing.
	e = c.handled(t, Bound, observed(bound, withJob, with(session), func(o *observation) { o.decision = nil }))
	if told(e, session) != "refuse: the call can't be run any more" || e.status.Reason != v1alpha1.ReasonPodLost || !*e.status.RetrySafe || len(e.remove) != 1 {
		t.Errorf("without the decision: %+v", e)
	}
}

// ownPod is the pod that is recorded in a bound call.
func ownPod(phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "pod-uid"}, Status: corev1.PodStatus{Phase: phase}}
}

func TestARunningCallIsWatchedOverUntilItEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t, observed().call, ownPod(corev1.PodRunning))
	own, _ := c.op.connect(t, "own", "call-uid")
	elsewhere, _ := c.op.connect(t, "elsewhere", "another-uid")
	for name, tc := range map[string]struct {
		o      *observation
		told   string
		reason string
		wakes  bool
	}{
		"connected":                              {observed(bound, withJob, with(own)), "", "", false},
		"connected, long after its limit":        {observed(bound, withJob, with(own), later(1000*time.Hour)), "", "", false},
		"connected, and cancelled":               {observed(bound, withJob, with(own), cancelled), "stop call-uid", "", false},
		"connected, with another call":           {observed(bound, withJob, with(elsewhere)), "", v1alpha1.ReasonPodLost, false},
		"away":                                   {observed(bound, withJob), "", "", true},
		"away, long after its limit":             {observed(bound, withJob, later(1000*time.Hour)), "", v1alpha1.ReasonPodLost, false},
		"away, and nobody could be heard before": {observed(bound, withJob, later(1000*time.Hour), justHeard), "", "", true},
	} {
		e := c.handled(t, Running, tc.o)
		reason := ""
		if e.status != nil {
			reason = e.status.Reason
		}
		if reason != tc.reason || told(e, own) != tc.told || (e.wake > 0) != tc.wakes {
			t.Errorf("%s: %q, told %q, looked at after %s", name, reason, told(e, own), e.wake)
		}
	}
	e := c.handled(t, Running, observed(bound, withJob, cancelled))
	if len(e.remove) != 1 || e.status != nil {
		t.Errorf("away, and cancelled: %+v", e)
	}
	// It may come and say that it has no call.
	e = c.handled(t, Running, observed(bound, withJob, cancelled, justHeard))
	if len(e.remove) != 0 || e.status != nil || e.wake <= 0 || e.wake > dispatch.ReconnectWait {
		t.Errorf("cancelled, and nobody could be heard before: %+v", e)
	}
	// Its pod may live longer than the limit, where the start took long.
	late := observed(bound, withJob, later(1000*time.Hour))
	late.job.Spec.ActiveDeadlineSeconds = ptr.To(int64((2000 * time.Hour).Seconds()))
	if e := c.handled(t, Running, late); e.status != nil || e.wake <= 0 {
		t.Errorf("away, long after its limit and before its Job's deadline: %+v", e)
	}
}

func TestACallWhosePodHasEndedIsOver(t *testing.T) {
	t.Parallel()
	for name, objects := range map[string][]client.Object{
		"a pod that failed": {observed().call, ownPod(corev1.PodFailed)}, "no pod": {observed().call}, "no pod, and no call any more": {},
	} {
		e := newCluster(t, objects...).handled(t, Running, observed(bound, withJob))
		if e.status == nil || e.status.Reason != v1alpha1.ReasonPodLost || *e.status.RetrySafe || len(e.remove) != 1 {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// finished is one that ended a second ago.
func finished(changes ...change) *observation {
	return observed(append([]change{bound, said(func(o *observation) *v1alpha1.ToolCallStatus { return o.withResult(outcome(), 0) }), func(o *observation) { o.decision = nil }, later(time.Second)}, changes...)...)
}

func TestAFinishedCallLetsGoOfWhatItHad(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	if e := c.handled(t, Finished, finished()); e.status != nil || !e.release || !e.forgetResult || !e.keep {
		t.Errorf("%+v", e)
	}
}

func TestAFinishedCallAnswersItsRunner(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	silent, _ := c.op.connect(t, "silent", "call-uid")
	if e := c.handled(t, Finished, finished(with(silent))); told(e, silent) != "refuse: the call has ended: Completed" || len(e.messages) != 1 {
		t.Errorf("told %q", told(e, silent))
	}
}

// A queue that took a Job's place lets it run later: with a pod that no call is for.
func TestAFinishedCallsJobThatWouldStartAgainIsDeleted(t *testing.T) {
	t.Parallel()
	job := func(name string, changes ...func(*batchv1.Job)) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: "job-uid",
			OwnerReferences: []metav1.OwnerReference{{Kind: "ToolCall", Name: "call", UID: "call-uid", Controller: ptr.To(true)}},
		}}
		for _, change := range changes {
			change(j)
		}
		return j
	}
	podOf := func(j *batchv1.Job, uid string) *corev1.Pod {
		p := ownPod(corev1.PodRunning)
		p.Name, p.OwnerReferences = j.Name+"-pod", []metav1.OwnerReference{{Kind: "Job", Name: j.Name, UID: j.UID, Controller: ptr.To(true)}}
		if uid != "" {
			p.UID = "another"
		}
		return p
	}
	held := func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }
	gone := func(j *batchv1.Job) {
		j.DeletionTimestamp, j.Finalizers = ptr.To(metav1.Now()), []string{"x"}
	}
	over := func(j *batchv1.Job) { endedJob(j) }
	for name, tc := range map[string]struct {
		job     *batchv1.Job
		pod     string
		removed bool
	}{
		"one that is held back":           {job("job", held), "none", true},
		"one that runs its own pod":       {job("job"), "", false},
		"one that runs another pod":       {job("job"), "another", true},
		"one whose pod is gone":           {job("job"), "none", false},
		"one that has ended":              {job("job", over), "another", false},
		"one that is held back and ended": {job("job", held, over), "none", false},
		"one that is deleted":             {job("job", held, gone), "none", false},
	} {
		objects := []client.Object{tc.job}
		if tc.pod != "none" {
			objects = append(objects, podOf(tc.job, tc.pod))
		}
		e := newCluster(t, objects...).handled(t, Finished, finished())
		if (len(e.remove) == 1) != tc.removed {
			t.Errorf("%s: %d are removed", name, len(e.remove))
		}
	}
}

func TestAForeignJobEndsTheCall(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	e := c.handled(t, New, observed(func(o *observation) { o.foreignJob = "job" }))
	if e.status.Reason != v1alpha1.ReasonPodRejected || len(e.remove) != 0 || e.create != nil {
		t.Errorf("got %+v", e)
	}
}

// The Job, and with it what was decided, is known by its seal.
func TestAJobIsTheCallsOwnByItsSeal(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := observed(decided)
	job := jobFor(t, c, o)
	jobspec.Slim(job)
	seen := observed()
	c.takeJob(seen, job)
	if seen.job != job || seen.decision.Environment != "env" || !seen.created.Equal(start) || seen.foreignJob != "" {
		t.Errorf("got %+v", seen)
	}
	job.OwnerReferences = nil
	stranger := observed()
	if c.takeJob(stranger, job); stranger.job != nil || stranger.decision != nil || stranger.foreignJob != job.Name {
		t.Errorf("got %+v", stranger)
	}
	// What is recorded counts, whatever became of the Job's annotations.
	recorded := observed(bound)
	if c.takeJob(recorded, job); recorded.job != job || recorded.foreignJob != "" {
		t.Errorf("got %+v", recorded)
	}
}
