package toolcall

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/result"
)

// A deadline that passed while nobody listened ends nothing: runners have the time to dial in first.
func TestNoDeadlineIsOverBeforeTheRunnersCouldBeHeard(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		deadline, heard, want time.Duration
	}{
		"an operator that has listened for long":              {time.Minute, -time.Hour, time.Minute},
		"one that has just begun, and a deadline to come":     {time.Minute, 0, time.Minute},
		"one that has just begun, and a deadline that passed": {-time.Hour, 0, dispatch.ReconnectWait},
		"a deadline in the time to dial in":                   {time.Second, 0, dispatch.ReconnectWait},
		"a deadline that passed before that":                  {-time.Minute, -time.Hour, -time.Minute},
	} {
		o := observed()
		o.heard = o.now.Add(tc.heard)
		if got := o.heardUntil(o.now.Add(tc.deadline)).Sub(o.now); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	// Where runners can't reach the operator yet, nobody is given up.
	o := observed()
	o.heard = time.Time{}
	for range 3 {
		if got := o.heardUntil(o.now.Add(-time.Hour)).Sub(o.now); got != dispatch.ReconnectWait {
			t.Errorf("before it listens: %s", got)
		}
		o.now = o.now.Add(time.Hour)
	}
}

func TestARunIsOverAfterItsLimitAndTheReport(t *testing.T) {
	t.Parallel()
	o := observed(bound)
	began := o.now
	for milliseconds := range map[int64]bool{1000: true, 600_000: true} {
		o.decision.TimeoutMilliseconds = milliseconds
		limit := time.Duration(milliseconds) * time.Millisecond
		if got := o.runDeadline().Sub(began); got < limit+runSlack || got > limit+10*time.Minute {
			t.Errorf("of a limit of %s: %s", limit, got)
		}
	}
	// Without the decision, nothing is known but the highest limit.
	o.decision = nil
	if got := o.runDeadline().Sub(began); got < longestRun {
		t.Errorf("without a decision: %s", got)
	}
	if got := observed().runDeadline(); !got.Equal(observed().now) {
		t.Errorf("of a call that says nothing: %s", got)
	}
}

func TestWhenACallWasGivenItsRunner(t *testing.T) {
	t.Parallel()
	if got := observed(bound, later(time.Hour)).started(); !got.Equal(start.Add(time.Second)) {
		t.Errorf("got %s", got)
	}
	if o := observed(); !o.started().Equal(o.now) {
		t.Errorf("of a call that says nothing: %s", o.started())
	}
}

// warmBound is a call that was given a waiting pod.
func warmBound(o *observation) {
	bound(o)
	withJob(o)
	o.job.Annotations = map[string]string{jobspec.AnnotationPool: "env"}
}

func TestAWaitingPodsJobIsAdoptedWhenThatDelaysNoResult(t *testing.T) {
	t.Parallel()
	gone := func(o *observation) { o.job.DeletionTimestamp = ptr.To(metav1.Now()) }
	owned := func(o *observation) {
		o.job.OwnerReferences = []metav1.OwnerReference{{Kind: "ToolCall", Controller: ptr.To(true)}}
	}
	for name, tc := range map[string]struct {
		o     *observation
		wake  time.Duration
		adopt bool
	}{
		"at once":                    {observed(warmBound), adoptWait, false},
		"a moment later":             {observed(warmBound, later(adoptWait-time.Millisecond)), time.Millisecond, false},
		"when it is due":             {observed(warmBound, later(adoptWait)), 0, true},
		"long after":                 {observed(warmBound, later(time.Hour)), 0, true},
		"a Job that is deleted":      {observed(warmBound, gone, later(time.Hour)), 0, false},
		"a Job that was adopted":     {observed(warmBound, owned, later(time.Hour)), 0, false},
		"a Job of the call's own":    {observed(bound, withJob, later(time.Hour)), 0, false},
		"a Job that nobody has seen": {observed(bound, later(time.Hour)), 0, false},
	} {
		e := tc.o.adoptWhenDue()
		if e.wake != tc.wake || (e.adopt != nil) != tc.adopt || e.adopt != nil && e.adopt != tc.o.job {
			t.Errorf("%s: looked at after %s, adopted: %t", name, e.wake, e.adopt != nil)
		}
	}
}

func TestAStartedCommandIsStoppedByWhoeverCanReachIt(t *testing.T) {
	t.Parallel()
	op := startOperator(t)
	session, _ := op.connect(t, "job", "call-uid")
	connected := observed(bound, withJob, cancelled, func(o *observation) { o.runner = session })
	var e effects
	if connected.stop(&e); len(e.messages) != 1 || e.messages[0].to != session || e.messages[0].stop != "call-uid" || len(e.remove) != 0 {
		t.Errorf("by its runner: %+v", e)
	}
	away := observed(bound, withJob, cancelled)
	e = effects{}
	if away.stop(&e); len(e.messages) != 0 || len(e.remove) != 1 || e.remove[0] != away.job {
		t.Errorf("by the kubelet: %+v", e)
	}
	for name, o := range map[string]*observation{
		"no Job": observed(bound), "a Job on its way out": observed(bound, withJob, func(o *observation) { o.job.DeletionTimestamp = ptr.To(metav1.Now()) }),
	} {
		e = effects{}
		if o.stop(&e); len(e.remove) != 0 {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func TestAPodBelongsToTheJobThatMadeIt(t *testing.T) {
	t.Parallel()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "job-uid"}}
	owner := func(kind string, controller *bool) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: "Other", UID: "x"}, {Kind: kind, UID: "job-uid", Controller: controller}}
	}
	for name, tc := range map[string]struct {
		owners []metav1.OwnerReference
		want   bool
	}{
		"its own":                {owner("Job", ptr.To(true)), true},
		"of another kind":        {owner("ReplicaSet", ptr.To(true)), false},
		"that refers to it":      {owner("Job", ptr.To(false)), false},
		"that refers to it, too": {owner("Job", nil), false},
		"of nobody":              {nil, false},
		"of another Job":         {[]metav1.OwnerReference{{Kind: "Job", UID: "other", Controller: ptr.To(true)}}, false},
	} {
		if got := host.IsPodOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: tc.owners}}, job); got != tc.want {
			t.Errorf("a pod %s: %t", name, got)
		}
	}
}

// left is a pod that has ended, with what its runner wrote before.
func left(phase corev1.PodPhase, reason, message string) *corev1.Pod {
	owner := metav1.OwnerReference{Kind: "Job", Name: jobspec.Name(observed().call), UID: "job-uid", Controller: ptr.To(true)}
	meta := metav1.ObjectMeta{Namespace: "ns", OwnerReferences: []metav1.OwnerReference{owner}}
	return &corev1.Pod{ObjectMeta: meta, Status: corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{
		{Name: "istio-proxy", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", Message: "forged"}}},
		{Name: jobspec.ContainerName, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: reason, Message: message}}},
	}}}
}

// exitedWith is the pod, the container of which exited with another code. Its reason stays OOMKilled if the kernel killed a process in it before.
func exitedWith(pod *corev1.Pod, code int32) *corev1.Pod {
	pod.Status.ContainerStatuses[1].State.Terminated.ExitCode = code
	return pod
}

// written is what the runner of a Job leaves for a call.
func written(token, callUID string, reported *wire.Result) string {
	return string(wire.NewTerminationMessage(token, callUID, result.EncodeTermination(&reported.Outcome, result.MaxTermination)).Encode())
}

func TestALostCallEndsWithWhatItsPodLeft(t *testing.T) {
	t.Parallel()
	r := NewReconciler(Options{Identity: newIdentity(t)})
	o := observed(bound, withJob)
	token := r.Identity.Token("ns", o.job.Name, "job-uid")
	good := written(token, "call-uid", outcome())
	failed := func(o *result.Outcome) {
		o.Reason, o.ExitCode, o.Message = result.NonZeroExit, result.Exit(3), "it failed"
	}
	orphan, elsewhere := left(corev1.PodSucceeded, "Completed", good), left(corev1.PodSucceeded, "Completed", good)
	orphan.OwnerReferences, elsewhere.OwnerReferences[0].Name = nil, "another"
	running := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	for name, tc := range map[string]struct {
		o      *observation
		pod    *corev1.Pod
		phase  v1alpha1.Phase
		reason string
		safe   bool
	}{
		"a result":                       {o, left(corev1.PodSucceeded, "Completed", good), v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, false},
		"a failure":                      {o, left(corev1.PodFailed, "Error", written(token, "call-uid", outcome(failed))), v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, false},
		"a result in spite of a cancel":  {observed(bound, withJob, cancelled), left(corev1.PodSucceeded, "Completed", good), v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, false},
		"another call's result":          {o, left(corev1.PodSucceeded, "Completed", written(token, "other", outcome())), v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, false},
		"a result with another token":    {o, left(corev1.PodSucceeded, "Completed", written("guess", "call-uid", outcome())), v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, false},
		"a result that no runner writes": {o, left(corev1.PodSucceeded, "Completed", written(token, "call-uid", outcome(func(o *result.Outcome) { o.ExitCode = result.Exit(7) }))), v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, false},
		"a result, the Job is gone":      {observed(bound), left(corev1.PodSucceeded, "Completed", good), v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, false},
		"a result of nobody's pod":       {o, orphan, v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, false},
		"a result of another Job's pod":  {o, elsewhere, v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, false},
		"nothing":                        {o, left(corev1.PodFailed, "Error", ""), v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, false},
		"something else":                 {o, left(corev1.PodFailed, "Error", "Killed"), v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, false},
		"one process too large, earlier": {o, exitedWith(left(corev1.PodFailed, "OOMKilled", ""), 1), v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, false},
		"too little memory":              {o, left(corev1.PodFailed, "OOMKilled", ""), v1alpha1.PhaseFailed, v1alpha1.ReasonOOMKilled, false},
		"a cancel, and nothing":          {observed(bound, withJob, cancelled), left(corev1.PodFailed, "Error", ""), v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, false},
		"no pod":                         {o, nil, v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, false},
		"no pod, and a cancel":           {observed(bound, withJob, cancelled), nil, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, false},
		"a pod that runs and is silent":  {o, running, v1alpha1.PhaseFailed, v1alpha1.ReasonPodLost, false},
	} {
		s := r.lost(tc.o, tc.pod, 0)
		if s.Phase != tc.phase || s.Reason != tc.reason {
			t.Errorf("%s: %s, %s: %s", name, s.Phase, s.Reason, s.Message)
		}
		if s.RetrySafe != nil && *s.RetrySafe != tc.safe {
			t.Errorf("%s: it is said that the command never started", name)
		}
		if hasCode := s.ExitCode != nil; hasCode != (s.Reason == v1alpha1.ReasonCompleted || s.Reason == v1alpha1.ReasonNonZeroExit) {
			t.Errorf("%s: exit code %v", name, s.ExitCode)
		}
	}
}
