package host

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

func container(name string, state corev1.ContainerState) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, State: state})
	}
}

func call(state corev1.ContainerState) func(*corev1.Pod) {
	return container(jobspec.ContainerName, state)
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func terminated(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, Message: message}}
}

func running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

func condition(kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message})
	}
}

func said(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Reason, pod.Status.Message = reason, message }
}

// bringing is the state of the init container that brings the runner.
func bringing(name string, state corev1.ContainerState) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, corev1.ContainerStatus{Name: name, State: state})
	}
}

func exited(code int32, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: message}}
}

func TestAPodSaysWhyItsRunnerIsNotBrought(t *testing.T) {
	t.Parallel()
	const name, cannot = jobspec.RunnerContainerName, "the init container toolcall-runner can't bring the runner: "
	waits := call(waiting("PodInitializing", ""))
	for what, tc := range map[string]struct {
		pod  *corev1.Pod
		want *Problem
	}{
		"an image that isn't there": {
			podOf("a", waits, bringing(name, waiting("ErrImagePull", "not found"))),
			&Problem{Final: true, Reason: v1alpha1.ReasonImagePullFailed, Message: cannot + "the image can't be pulled: ErrImagePull: not found"},
		},
		"an image of many at once": {
			podOf("a", waits, bringing(name, waiting("ErrImagePull", "pull QPS exceeded"))),
			&Problem{Reason: v1alpha1.ReasonImagePullFailed, Message: cannot + "the image can't be pulled: ErrImagePull: pull QPS exceeded"},
		},
		"no room": {
			podOf("a", inPhase(corev1.PodFailed), waits, bringing(name, exited(1, "runner: copy the runner: no space left on device\n"))),
			&Problem{Final: true, Reason: v1alpha1.ReasonPodRejected, Message: cannot + "it ended with code 1: Error: runner: copy the runner: no space left on device"},
		},
		"a copy of this moment":      {podOf("a", waits, bringing(name, running())), nil},
		"a copy that is done":        {podOf("a", waits, bringing(name, exited(0, ""))), nil},
		"another one's init trouble": {podOf("a", waits, bringing("mesh", waiting("ErrImagePull", "not found"))), nil},
		"an init container of a mesh before it": {
			podOf("a", waits, bringing("mesh", exited(0, "")), bringing(name, waiting("ErrImageNeverPull", ""))),
			&Problem{Final: true, Reason: v1alpha1.ReasonImagePullFailed, Message: cannot + "the image can't be pulled: ErrImageNeverPull"},
		},
		"a pod that is deleted meanwhile": {
			podOf("a", deleted, waits, bringing(name, exited(137, ""))),
			&Problem{Final: true, Reason: v1alpha1.ReasonPodLost, Message: "the pod was deleted before the command could start"},
		},
		"a node that is emptied meanwhile": {
			podOf("a", inPhase(corev1.PodFailed), waits, bringing(name, exited(137, "")), condition(corev1.DisruptionTarget, corev1.ConditionTrue, "EvictionByEvictionAPI", "drain")),
			&Problem{Final: true, Reason: v1alpha1.ReasonPodLost, Message: "the pod was taken away before the command could start: EvictionByEvictionAPI: drain"},
		},
	} {
		if diff := cmp.Diff(tc.want, DiagnosePod(tc.pod, "a")); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
}

// podCases are pods, as the kubelet and the scheduler describe them, and what they say about a runner that hasn't come.
func podCases() map[string]struct {
	pod  *corev1.Pod
	want *Problem
} {
	final := func(reason, message string) *Problem { return &Problem{Final: true, Reason: reason, Message: message} }
	passing := func(reason, message string) *Problem { return &Problem{Reason: reason, Message: message} }
	return map[string]struct {
		pod  *corev1.Pod
		want *Problem
	}{
		"a new pod":              {podOf("a"), nil},
		"a pod that is starting": {podOf("a", inPhase(corev1.PodPending), call(waiting("ContainerCreating", ""))), nil},
		"a pod that runs":        {podOf("a", inPhase(corev1.PodRunning), call(running())), nil},
		"an image that isn't there": {
			podOf("a", call(waiting("ErrImagePull", "not found"))), final(v1alpha1.ReasonImagePullFailed, "the image can't be pulled: ErrImagePull: not found"),
		},
		"an image that waits to be tried again": {
			podOf("a", call(waiting("ImagePullBackOff", `Back-off pulling image "x": ErrImagePull: no`))),
			final(v1alpha1.ReasonImagePullFailed, `the image can't be pulled: ImagePullBackOff: Back-off pulling image "x": ErrImagePull: no`),
		},
		"an image that waits, without a word why": {
			podOf("a", call(waiting("ImagePullBackOff", `Back-off pulling image "x:1"`))),
			passing(v1alpha1.ReasonImagePullFailed, `the image can't be pulled: ImagePullBackOff: Back-off pulling image "x:1"`),
		},
		"a name that is none": {
			podOf("a", call(waiting("InvalidImageName", "x"))), final(v1alpha1.ReasonImagePullFailed, "the image can't be pulled: InvalidImageName: x"),
		},
		"an image of many at once": {
			podOf("a", call(waiting("ErrImagePull", "pull QPS exceeded"))), passing(v1alpha1.ReasonImagePullFailed, "the image can't be pulled: ErrImagePull: pull QPS exceeded"),
		},
		"a Secret of the environment that isn't there": {
			podOf("a", call(waiting("CreateContainerConfigError", `secret "theirs" not found`))), final(v1alpha1.ReasonInvalidEnvironment, `the container can't be made: CreateContainerConfigError: secret "theirs" not found`),
		},
		"the Secret with its own token": {
			podOf("a", call(waiting("CreateContainerConfigError", `secret "a" not found`))), &Problem{NoCredential: true},
		},
		"a kubelet that is busy": {
			podOf("a", call(waiting("CreateContainerConfigError", "failed to sync secret cache: timed out waiting for the condition"))),
			passing(v1alpha1.ReasonInvalidEnvironment, "the container can't be made: CreateContainerConfigError: failed to sync secret cache: timed out waiting for the condition"),
		},
		"a runtime that is busy": {
			podOf("a", call(waiting("CreateContainerError", `failed to reserve container name "x": name "x" is reserved for "y"`))),
			passing(v1alpha1.ReasonInvalidEnvironment, `the container can't be made: CreateContainerError: failed to reserve container name "x": name "x" is reserved for "y"`),
		},
		"a program that isn't in the image": {
			podOf("a", inPhase(corev1.PodFailed), call(terminated("StartError", "no such file"))), final(v1alpha1.ReasonInvalidEnvironment, "the container can't be started: StartError: no such file"),
		},
		"a runtime that was restarted": {
			podOf("a", inPhase(corev1.PodFailed), call(terminated("ContainerCannotRun", "ttrpc: closed"))), final(v1alpha1.ReasonPodLost, "the pod was given up while its container was being started: ContainerCannotRun: ttrpc: closed"),
		},
		"a pod that the kubelet refused": {
			podOf("a", inPhase(corev1.PodFailed), said("OutOfcpu", "not enough")), final(v1alpha1.ReasonPodRejected, "the pod ended before the command could start: OutOfcpu: not enough"),
		},
		"a runner that said why it ended": {
			podOf("a", inPhase(corev1.PodFailed), call(terminated("Error", "refused"))), final(v1alpha1.ReasonPodRejected, "the pod ended before the command could start: Error: refused"),
		},
		"a runner that the kubelet ended": {
			podOf("a", inPhase(corev1.PodFailed), said("Evicted", "memory"), call(terminated("Error", "refused"))), final(v1alpha1.ReasonPodRejected, "the pod ended before the command could start: Evicted: memory"),
		},
		"a pod that ended well": {podOf("a", inPhase(corev1.PodSucceeded)), final(v1alpha1.ReasonPodRejected, "the pod ended before the command could start")},
		"a pod whose node was emptied": {
			podOf("a", inPhase(corev1.PodFailed), condition(corev1.DisruptionTarget, corev1.ConditionTrue, "EvictionByEvictionAPI", "drain")),
			final(v1alpha1.ReasonPodLost, "the pod was taken away before the command could start: EvictionByEvictionAPI: drain"),
		},
		"a pod that somebody deletes":  {podOf("a", deleted), final(v1alpha1.ReasonPodLost, "the pod was deleted before the command could start")},
		"a pod that is on its way out": {podOf("a", deleted, call(terminated("Error", ""))), final(v1alpha1.ReasonPodLost, "the pod was deleted before the command could start")},
		"a pod that no node takes": {
			podOf("a", condition(corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable, "0/3 nodes")), passing(v1alpha1.ReasonUnschedulable, "no node takes the pod: 0/3 nodes"),
		},
		"a pod that is held back from the scheduler": {
			podOf("a", condition(corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonSchedulingGated, "gates")), passing(v1alpha1.ReasonNotStarted, "the pod waits for a node: SchedulingGated: gates"),
		},
		"a pod that has its node": {podOf("a", condition(corev1.PodScheduled, corev1.ConditionTrue, "", "")), nil},
	}
}

func TestAPodSaysWhyItsRunnerDoesNotCome(t *testing.T) {
	t.Parallel()
	for name, tc := range podCases() {
		if diff := cmp.Diff(tc.want, DiagnosePod(tc.pod, "a")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A mesh injects containers into the pod. Whatever becomes of them, before or after ours in the list, nothing else is
// said of the pod.
func TestOnlyOurContainerCounts(t *testing.T) {
	t.Parallel()
	sidecars := map[string]corev1.ContainerState{
		"runs":                running(),
		"failed":              terminated("Error", "exit status 1"),
		"ended":               terminated("Completed", ""),
		"can't start":         terminated("StartError", "no such file"),
		"waits for its image": waiting("ImagePullBackOff", "not found"),
		"can't be made":       waiting("CreateContainerConfigError", `secret "a" not found`),
		"says nothing":        {},
	}
	for state, sidecar := range sidecars {
		for name, tc := range podCases() {
			for _, first := range []bool{true, false} {
				pod := tc.pod.DeepCopy()
				container("istio-proxy", sidecar)(pod)
				if s := pod.Status.ContainerStatuses; first && len(s) > 1 {
					s[0], s[1] = s[1], s[0]
				}
				if diff := cmp.Diff(tc.want, DiagnosePod(pod, "a")); diff != "" {
					t.Errorf("%s, beside a sidecar that %s: %s", name, state, diff)
				}
				if HasPodEnded(pod) != HasPodEnded(tc.pod) {
					t.Errorf("%s, beside a sidecar that %s: ended: %t", name, state, HasPodEnded(pod))
				}
				if cmp.Diff(Terminated(tc.pod), Terminated(pod)) != "" {
					t.Errorf("%s, beside a sidecar that %s: %+v", name, state, Terminated(pod))
				}
			}
		}
	}
}

// Such a pod goes on as a whole, and nothing of a call runs in it.
func TestARunnerThatEndedBesideASidecarIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		state corev1.ContainerState
		want  string
	}{
		"it failed":            {terminated("Error", ""), "the pod ended before the command could start: Error"},
		"it said why":          {terminated("Error", "refused"), "the pod ended before the command could start: Error: refused"},
		"it ended":             {terminated("Completed", ""), "the pod ended before the command could start: Completed"},
		"it ran out of memory": {terminated("OOMKilled", ""), "the pod ended before the command could start: OOMKilled"},
	} {
		pod := podOf("a", inPhase(corev1.PodRunning), container("istio-proxy", running()), call(tc.state))
		want := &Problem{Final: true, Reason: v1alpha1.ReasonPodRejected, Message: tc.want}
		if diff := cmp.Diff(want, DiagnosePod(pod, "a")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if !HasPodEnded(pod) {
			t.Errorf("%s: the pod is said to go on", name)
		}
	}
}

func TestAPodThatWasTakenAwaySaysNothingOfTheNext(t *testing.T) {
	t.Parallel()
	target := func(reason string) func(*corev1.Pod) {
		return condition(corev1.DisruptionTarget, corev1.ConditionTrue, reason, "")
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"no pod":                              {nil, false},
		"a pod that runs":                     {podOf("a", inPhase(corev1.PodRunning)), false},
		"a pod that is about to be taken":     {podOf("a", inPhase(corev1.PodRunning), target("PreemptionByScheduler")), false},
		"a pod that was taken":                {podOf("a", inPhase(corev1.PodFailed), target("PreemptionByScheduler")), true},
		"a pod that is being taken":           {podOf("a", deleted, target("DeletionByTaintManager")), true},
		"a pod that failed by itself":         {podOf("a", inPhase(corev1.PodFailed)), false},
		"a pod that somebody deletes":         {podOf("a", deleted), false},
		"a pod that took too much of a node":  {podOf("a", inPhase(corev1.PodFailed), target(corev1.PodReasonTerminationByKubelet)), false},
		"a disruption that was thought of":    {podOf("a", inPhase(corev1.PodFailed), condition(corev1.DisruptionTarget, corev1.ConditionFalse, "x", "")), false},
		"a pod that ended well, then removed": {podOf("a", inPhase(corev1.PodSucceeded), target("EvictionByEvictionAPI")), true},
	} {
		if got := WasTakenAway(tc.pod); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestAJobSaysWhyItHasNoPod(t *testing.T) {
	t.Parallel()
	failed := func(status corev1.ConditionStatus, reason, message string) func(*batchv1.Job) {
		return func(job *batchv1.Job) {
			job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: status, Reason: reason, Message: message}}
		}
	}
	for name, tc := range map[string]struct {
		job  *batchv1.Job
		want *Problem
	}{
		"a new Job":               {jobOf("a"), nil},
		"a Job that is suspended": {jobOf("a", endedJob(batchv1.JobSuspended)), nil},
		"a Job that is deleted":   {jobOf("a", deletedJob), &Problem{Final: true, Reason: v1alpha1.ReasonPodLost, Message: "the Job was deleted before the command could start"}},
		"a Job that failed": {
			jobOf("a", failed(corev1.ConditionTrue, "DeadlineExceeded", "too long")), &Problem{Final: true, Reason: v1alpha1.ReasonPodLost, Message: "the Job ended before the command could start: DeadlineExceeded: too long"},
		},
		"a Job that has not failed":   {jobOf("a", failed(corev1.ConditionFalse, "x", "")), nil},
		"a Job that is complete":      {jobOf("a", endedJob(batchv1.JobComplete)), &Problem{Final: true, Reason: v1alpha1.ReasonPodRejected, Message: "the pod ended before the command could start"}},
		"a Job that is about to fail": {jobOf("a", endedJob(batchv1.JobFailureTarget)), nil},
	} {
		if diff := cmp.Diff(tc.want, DiagnoseJob(tc.job)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestACallThatWaitedTooLongIsToldTheBestGuess(t *testing.T) {
	t.Parallel()
	alone := StartTimeout("the command", 30, nil)
	if alone.Reason != v1alpha1.ReasonStartTimeout || !alone.Final || !strings.Contains(alone.Message, "the command did not start within 30 s (startTimeoutSeconds") {
		t.Errorf("without a guess: %+v", alone)
	}
	guess := StartTimeout("the command", 30, &Problem{Reason: v1alpha1.ReasonUnschedulable, Message: "no node takes the pod: 0/3 nodes"})
	if guess.Reason != v1alpha1.ReasonUnschedulable || !guess.Final || !strings.HasSuffix(guess.Message, ": no node takes the pod: 0/3 nodes") {
		t.Errorf("with one: %+v", guess)
	}
}

// A registry may be there again the next time that the kubelet tries; what it refuses, it refuses again.
func TestAPullThatMayPassIsWaitedFor(t *testing.T) {
	t.Parallel()
	for message, isFinal := range map[string]bool{
		"dial tcp 10.0.0.1:443: i/o timeout": false, "dial tcp 10.0.0.1:443: connect: connection refused": false,
		"net/http: TLS handshake timeout": false, "unexpected status: 429 Too Many Requests": false,
		"toomanyrequests: You have reached your pull rate limit": false, "received unexpected HTTP status: 500 Internal Server Error": false,
		"502 Bad Gateway": false, "503 Service Unavailable": false, "504 Gateway Timeout": false,
		"lookup registry on 10.0.0.2:53: server misbehaving": false, "lookup registry: Temporary failure in name resolution": false,
		"dial tcp 10.0.0.1:443: connect: no route to host": false, "dial tcp 10.0.0.1:443: connect: network is unreachable": false,
		"failed to extract layer: write /usr/lib/a.so: no space left on device": false,
		"lookup registry: no such host":                                         true, "manifest unknown": true, `"app:500": not found`: true,
		"unexpected status: 401 Unauthorized": true, "": true,
	} {
		for _, said := range []corev1.ContainerState{
			waiting("ErrImagePull", message), waiting("ImageInspectError", message),
			waiting("ImagePullBackOff", `Back-off pulling image "app:500": ErrImagePull: `+message),
		} {
			if found := DiagnosePod(podOf("a", call(said)), "a"); found.Final != isFinal || found.Reason != v1alpha1.ReasonImagePullFailed {
				t.Errorf("%+v: %+v", said.Waiting, found)
			}
		}
	}
	if found := DiagnosePod(podOf("a", call(waiting("RegistryUnavailable", ""))), "a"); found.Final {
		t.Errorf("%+v", found)
	}
}

// The Job controller tries again to make a pod.
func TestOnlyWhatIsRefusedForGoodEndsACall(t *testing.T) {
	t.Parallel()
	const full, rejected = v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonPodRejected
	for message, want := range map[string]Problem{
		`pods "x" is forbidden: status unknown for quota: q, resources: pods`:               {Reason: full},
		`Operation cannot be fulfilled on resourcequotas "q": the object has been modified`: {Reason: rejected},
		"net/http: TLS handshake timeout":                                                   {Reason: rejected},
		"http2: client connection lost":                                                     {Reason: rejected},
		"etcdserver: leader changed":                                                        {Reason: rejected},
		`Internal error occurred: failed calling webhook "w": service "w" not found`:        {Reason: rejected},
		`pods "x" is forbidden: violates PodSecurity`:                                       {Final: true, Reason: rejected},
		`Pod "x" is invalid: spec.containers[0].image: Required value`:                      {Final: true, Reason: rejected},
		`admission webhook "w" denied the request: no`:                                      {Final: true, Reason: rejected},
		`priorityclasses.scheduling.k8s.io "p" not found`:                                   {Final: true, Reason: rejected},
		`is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0`: {Final: true, Reason: rejected},
	} {
		if found := podRefused("Error creating: " + message); found.Final != want.Final || found.Reason != want.Reason {
			t.Errorf("%s: %+v", message, found)
		}
	}
}

func TestAPodSaysWhoTookItAway(t *testing.T) {
	t.Parallel()
	preempted := condition(corev1.DisruptionTarget, corev1.ConditionTrue, "PreemptionByScheduler", "preempting")
	failed := call(terminated("Error", ""))
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"who made room":         {podOf("a", inPhase(corev1.PodFailed), preempted, failed), "PreemptionByScheduler: preempting"},
		"the kubelet says more": {podOf("a", inPhase(corev1.PodFailed), said("Evicted", "memory"), preempted), "Evicted: memory"},
		"its own end":           {podOf("a", inPhase(corev1.PodFailed), failed), "Error"},
		"nobody says it":        {podOf("a", inPhase(corev1.PodFailed)), ""},
	} {
		if got := WhyPodEnded(tc.pod); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestASentenceLeavesOutWhatNobodySaid(t *testing.T) {
	t.Parallel()
	for want, parts := range map[string][3]string{"a": {"a"}, "a: b": {"a", "b"}, "a: c": {"a", "", "c"}, "a: b: c": {"a", "b", "c"}} {
		if got := Sentence(parts[0], parts[1], parts[2]); got != want {
			t.Errorf("%q: %q", parts, got)
		}
	}
}
