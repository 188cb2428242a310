package toolcall_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/testing/fixture"
)

// A call that starts within a second says both at once: one write less.
func TestACallSaysThatItIsAcceptedWhenItDoesNotStartAtOnce(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c")
	if again := w.Reconcile(call).RequeueAfter; again <= 0 || again > time.Second {
		t.Errorf("looks again after %s", again)
	}
	before := w.Get(call)
	if !w.HasJob(call) || before.ResourceVersion != call.ResourceVersion {
		t.Fatalf("at once: %+v", before.Status)
	}
	created := w.Clock.At
	w.Clock.At = created.Add(999 * time.Millisecond)
	w.Reconcile(call)
	if now := w.Get(call); now.ResourceVersion != call.ResourceVersion {
		t.Fatalf("a moment later: %+v", now.Status)
	}
	w.Clock.At = created.Add(time.Second)
	w.Reconcile(call)
	s := w.Get(call).Status
	if s.Phase != v1alpha1.PhasePending || s.Job == "" || s.Action == nil || s.Action.Summary == "" || *s.Timings.AcceptedMilliseconds != 0 {
		t.Errorf("after a second: %+v", s)
	}
	accepted := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAccepted)
	if accepted == nil || accepted.Status != metav1.ConditionTrue || !accepted.LastTransitionTime.Time.Equal(created.Truncate(time.Second)) {
		t.Errorf("accepted: %+v, seen at %s", accepted, created)
	}
	if fixture.Condition(w.Get(call), v1alpha1.ConditionFinished) != metav1.ConditionFalse || fixture.Condition(w.Get(call), v1alpha1.ConditionSucceeded) != metav1.ConditionUnknown {
		t.Errorf("after a second: %+v", s)
	}
}

// Since when a call is accepted is kept in its Job: an operator that starts meanwhile says so in time.
func TestASuccessorSaysInTimeThatACallIsAccepted(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c")
	w.Reconcile(call)
	w.Restart()
	w.Clock.Set(w.Clock.Now().Add(time.Second))
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Phase != v1alpha1.PhasePending || s.Job == "" || s.Action == nil {
		t.Errorf("the status is %+v", s)
	}
}

// All that is known of a call stands in it also when it ends before it has said that it was accepted.
func TestACallThatEndsSoonSaysWhatItWas(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c")
	w.Reconcile(call)
	call.Spec.Cancel = true
	if err := w.Client.Update(context.Background(), call); err != nil {
		t.Fatal(err)
	}
	w.Reconcile(call)
	s := w.Get(call).Status
	if s.Phase != v1alpha1.PhaseCancelled || s.Job == "" || s.Action == nil || s.Environment.Name != "env" || s.Timings.AcceptedMilliseconds == nil {
		t.Errorf("the status is %+v", s)
	}
}

func TestWhatAPodSaysAboutWhyItDoesNotStart(t *testing.T) {
	waiting := func(reason, message string) func(*corev1.PodStatus) {
		return func(s *corev1.PodStatus) {
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
		}
	}
	ended := func(reason, message string) func(*corev1.PodStatus) {
		return func(s *corev1.PodStatus) {
			s.Phase = corev1.PodFailed
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, Message: message}}}}
		}
	}
	for name, tc := range map[string]struct {
		status func(*corev1.PodStatus)
		reason string
		says   string
	}{
		"image":   {waiting("ErrImagePull", "no such host"), v1alpha1.ReasonImagePullFailed, "no such host"},
		"secret":  {waiting("CreateContainerConfigError", `secret "db" not found`), v1alpha1.ReasonInvalidEnvironment, "db"},
		"program": {ended("StartError", `exec: "/.toolcall/runner": permission denied`), v1alpha1.ReasonInvalidEnvironment, "permission denied"},
		"kubelet": {ended("StartError", "failed to create shim task: context canceled"), v1alpha1.ReasonPodLost, "being started"},
		"evicted": {func(s *corev1.PodStatus) { s.Phase = corev1.PodFailed; s.Reason = "Evicted" }, v1alpha1.ReasonPodRejected, "Evicted"},
		// What the pod garbage collector writes for the pods of a node that is gone.
		"node gone": {func(s *corev1.PodStatus) {
			s.Phase = corev1.PodFailed
			s.Conditions = []corev1.PodCondition{{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
			}}
		}, v1alpha1.ReasonPodLost, "node no longer exists"},
	} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			w.Environment("env", fixture.AsDefault)
			call := w.Call("c")
			w.Reconcile(call)
			pod := w.Pod(w.Job(call))
			w.PodStatus(pod, tc.status)
			w.Reconcile(call)
			s := w.Get(call).Status
			if s.Phase != v1alpha1.PhaseFailed || s.Reason != tc.reason || !strings.Contains(s.Message, tc.says) || !*s.RetrySafe {
				t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
			}
			fixture.Eventually(t, func() bool { return !w.HasJob(call) || w.Job(call).DeletionTimestamp != nil })
		})
	}
}

// The kubelet tries these again; the call waits for that, up to its start timeout.
func TestACallOutlastsWhatTheKubeletTriesAgain(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	for name, tc := range map[string]struct{ reason, message string }{
		"a runtime that was restarted":  {"RunContainerError", "error reading from server: EOF"},
		"a runtime that is not there":   {"RunContainerError", `rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial unix /run/containerd/containerd.sock: connect: no such file or directory"`},
		"a Secret that is late":         {"RunContainerError", "failed to sync secret cache: timed out waiting for the condition"},
		"a runtime that took too long":  {"RunContainerError", "context deadline exceeded"},
		"a connection that was cut off": {"RunContainerError", "read unix @->/run/containerd/containerd.sock: read: connection reset by peer"},
		"many pulls in one second":      {"ErrImagePull", "pull QPS exceeded"},
		"a pull after many":             {"ImagePullBackOff", `Back-off pulling image "x": ErrImagePull: pull QPS exceeded`},
	} {
		t.Run(name, func(t *testing.T) {
			w.T = t
			call := w.Call("c-" + strings.ReplaceAll(strings.ToLower(name), " ", "-"))
			w.Accept(call)
			w.PodStatus(w.Pod(w.Job(call)), func(s *corev1.PodStatus) {
				s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Reason: tc.reason, Message: tc.message},
				}}}
			})
			w.Reconcile(call)
			if s := w.Get(call).Status; s.Phase != v1alpha1.PhasePending {
				t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
			}
		})
	}
}

func TestTheCredentialIsMadeAgainWhenItIsMissing(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c")
	w.Accept(call)
	job := w.Job(call)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: job.Name}}
	if err := w.Client.Delete(context.Background(), secret); err != nil {
		t.Fatal(err)
	}
	w.PodStatus(w.Pod(job), func(s *corev1.PodStatus) {
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: `secret "` + job.Name + `" not found`},
		}}}
	})
	w.Reconcile(call)
	if err := fixture.Shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	if string(secret.Data[jobspec.TokenKey]) != w.Identity.Token(w.Namespace, job.Name, string(job.UID)) {
		t.Error("the credential that was made again is another one")
	}
	if now := w.Get(call); now.Status.Phase != v1alpha1.PhasePending {
		t.Errorf("the call ended: %+v", now.Status)
	}
}

func TestACallThatDoesNotStartInTimeEnds(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", func(e *v1alpha1.ExecutionEnvironment) {
		fixture.AsDefault(e)
		e.Spec.StartTimeoutSeconds = ptr.To(int32(30))
	})
	for name, tc := range map[string]struct {
		status func(*corev1.PodStatus)
		reason string
	}{
		"slow": {func(*corev1.PodStatus) {}, v1alpha1.ReasonStartTimeout},
		"unschedulable": {func(s *corev1.PodStatus) {
			s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes"}}
		}, v1alpha1.ReasonUnschedulable},
	} {
		t.Run(name, func(t *testing.T) {
			w.Clock.At = time.Now()
			call := w.Call(name)
			w.Reconcile(call)
			w.PodStatus(w.Pod(w.Job(call)), tc.status)
			if wake := w.Reconcile(call).RequeueAfter; wake <= 0 || wake > 31*time.Second {
				t.Errorf("looks again after %s", wake)
			}
			w.Clock.At = w.Clock.At.Add(31 * time.Second)
			w.Reconcile(call)
			if s := w.Get(call).Status; s.Reason != tc.reason || !*s.RetrySafe {
				t.Errorf("ended %s: %s", s.Reason, s.Message)
			}
		})
	}
}

// Where no admission policy holds a spec, what was checked and what runs must still be the same.
func TestACallThatWasChangedDoesNotRun(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	before, launched := w.Call("before"), w.Call("launched")
	w.Accept(launched)
	for _, call := range []*v1alpha1.ToolCall{before, launched} {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"shell":{"command":"rm -rf /workspace"}}}`))
		if err := w.Client.Patch(context.Background(), call, patch); err != nil {
			t.Fatal(err)
		}
		w.Reconcile(call)
		if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseDenied || s.Reason != v1alpha1.ReasonInvalidArguments || !strings.Contains(s.Message, "changed after the call was created") {
			t.Errorf("%s ended %s/%s: %s", call.Name, s.Phase, s.Reason, s.Message)
		}
	}
	fixture.Eventually(t, func() bool { return !w.Live(launched) })
}

func TestARestoredCallSaysWhyItWasCancelled(t *testing.T) {
	w := fixture.NewWorld(t)
	call := w.Call("restored", func(c *v1alpha1.ToolCall) {
		c.Spec.Cancel = true
		c.Annotations = map[string]string{v1alpha1.AnnotationRestored: v1alpha1.RestoredRequester}
	})
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseCancelled || !strings.Contains(s.Message, "came back from a backup") {
		t.Errorf("ended %s: %s", s.Phase, s.Message)
	}
}
