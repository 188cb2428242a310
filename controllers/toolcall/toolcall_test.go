package toolcall_test

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/testing/fixture"
)

func TestACallGoesFromCreationToItsResult(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c")

	w.Reconcile(call)
	job := w.Job(call)
	r := w.Runner(job, w.Pod(job))
	w.Reconcile(call)
	now := w.Get(call)
	if now.Status.Phase != v1alpha1.PhaseRunning || now.Status.Runner == nil || now.Status.Node != "node-1" {
		t.Fatalf("with its runner there the status is %+v", now.Status)
	}
	assigned := r.Receive().Assign
	if assigned == nil || assigned.CallUID != string(call.UID) || strings.Join(assigned.Argv, " ") != "bash -c echo hi" {
		t.Fatalf("assigned %+v", assigned)
	}
	r.Report(w, call.UID, fixture.Completed)
	w.Reconcile(call)
	if r.Receive().Ack == nil {
		t.Error("the result was not acknowledged")
	}
	now = w.Get(call)
	s := now.Status
	if s.Phase != v1alpha1.PhaseSucceeded || s.Reason != v1alpha1.ReasonCompleted || *s.ExitCode != 0 || s.Stdout != "hi\n" || *s.DurationMilliseconds != 1000 {
		t.Errorf("the end is %+v", s)
	}
	if s.Output != "hi\n\nTook 1.0s" {
		t.Errorf("output is %q", s.Output)
	}
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionStarted, v1alpha1.ConditionFinished, v1alpha1.ConditionSucceeded} {
		if fixture.Condition(now, kind) != metav1.ConditionTrue {
			t.Errorf("condition %s is %s", kind, fixture.Condition(now, kind))
		}
	}
}

func TestAnAssignmentThatGotLostIsGivenToTheSameProcessOnly(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c")
	w.Reconcile(call)
	job := w.Job(call)
	pod := w.Pod(job)
	first := w.Runner(job, pod)
	w.Reconcile(call)
	first.Conn.Close()
	fixture.Eventually(t, func() bool { return w.Hub.Len() == 0 })

	other := w.Runner(job, pod)
	w.Reconcile(call)
	if now := w.Get(call); now.Status.Phase != v1alpha1.PhaseRunning {
		t.Fatalf("another process changed the call: %+v", now.Status)
	}
	other.Conn.Close()
	fixture.Eventually(t, func() bool { return w.Hub.Len() == 0 })

	first.Connect(w, "")
	w.Reconcile(call)
	if first.Receive().Assign == nil {
		t.Error("the process that was recorded did not get its call again")
	}
}

func TestARunnerOfAnotherPodIsRefused(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c")
	w.Accept(call)
	job := w.Job(call)
	foreign := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}},
	}
	w.Create(foreign)
	r := w.Runner(job, foreign)
	w.Reconcile(call)
	if m := r.Receive(); m.Refuse == nil {
		t.Errorf("got %+v; want a refusal", m)
	}
	if now := w.Get(call); now.Status.Runner != nil || now.Status.Phase != v1alpha1.PhasePending {
		t.Errorf("the status is %+v", now.Status)
	}
}

func TestAResultThatCannotBeIsNotRecorded(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c")
	w.Reconcile(call)
	r := w.Start(call)
	lie := fixture.Completed
	lie.Stdout = result.Stream{Head: []byte("other\n"), Bytes: 6, SHA256: fixture.Completed.Stdout.SHA256}
	r.Report(w, call.UID, lie)
	w.Reconcile(call)
	if now := w.Get(call); now.Status.Phase != v1alpha1.PhaseRunning {
		t.Errorf("the status is %+v", now.Status)
	}
}

func TestAForgedJobIsNotRun(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	for name, labels := range map[string]map[string]string{
		"with-our-label":    {v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
		"without-our-label": nil,
	} {
		t.Run(name, func(t *testing.T) {
			call := w.Call(name)
			w.Create(&batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{
					Name:        jobspec.Name(call),
					Labels:      labels,
					Annotations: map[string]string{jobspec.AnnotationDecision: `{"environment":"env","argvPrefix":["evil"]}`},
					OwnerReferences: []metav1.OwnerReference{{
						APIVersion: v1alpha1.GroupVersion.String(), Kind: "ToolCall", Name: call.Name, UID: call.UID, Controller: ptr.To(true),
					}},
				},
				Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "x"}},
				}}},
			})
			w.Reconcile(call)
			s := w.Get(call).Status
			if s.Phase != v1alpha1.PhaseFailed || s.Reason != v1alpha1.ReasonPodRejected || !*s.RetrySafe || !strings.Contains(s.Message, jobspec.Name(call)) || s.Job != "" {
				t.Errorf("the status is %+v", s)
			}
		})
	}
}

// A pod that ends well without having asked for its call has the operator learn of it from the Job.
func TestAJobThatEndsBeforeItsRunnerAskedForTheCall(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c")
	w.Reconcile(call)
	job := w.Job(call)
	w.PodStatus(w.Pod(job), func(s *corev1.PodStatus) { s.Phase = corev1.PodSucceeded })
	w.Reconcile(call)
	w.CompleteJob(job)
	w.Reconcile(call)
	s := w.Get(call).Status
	if s.Reason != v1alpha1.ReasonPodRejected || !*s.RetrySafe || !strings.Contains(s.Message, "ended before the command could start") {
		t.Errorf("the status is %+v", s)
	}
}

func TestCalls_ThatEndBeforeAnythingIsMade(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env")
	w.Environment("bad-policy", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.PolicyRef = &v1alpha1.PolicyReference{Name: "missing"} })
	named := func(name string) func(*v1alpha1.ToolCall) {
		return func(c *v1alpha1.ToolCall) { c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: name} }
	}
	for name, tc := range map[string]struct {
		change []func(*v1alpha1.ToolCall)
		phase  v1alpha1.Phase
		reason string
		says   string
	}{
		"no-environment": {nil, v1alpha1.PhaseFailed, v1alpha1.ReasonNoEnvironment, "spec.environmentRef"},
		"unknown-environment": {
			[]func(*v1alpha1.ToolCall){named("nowhere")}, v1alpha1.PhaseFailed, v1alpha1.ReasonEnvironmentNotFound, "nowhere",
		},
		"unknown-skill": {
			[]func(*v1alpha1.ToolCall){named("env"), func(c *v1alpha1.ToolCall) { c.Spec.SkillRef = &v1alpha1.LocalReference{Name: "s"} }},
			v1alpha1.PhaseFailed, v1alpha1.ReasonSkillNotFound, `Skill "s"`,
		},
		"unknown-policy": {[]func(*v1alpha1.ToolCall){named("bad-policy")}, v1alpha1.PhaseFailed, v1alpha1.ReasonInvalidPolicy, "missing"},
		"no-interpreter": {
			[]func(*v1alpha1.ToolCall){named("env"), func(c *v1alpha1.ToolCall) {
				c.Spec.Shell = nil
				c.Spec.Code = &v1alpha1.CodeAction{Language: "cobol", Source: "x"}
			}}, v1alpha1.PhaseDenied, v1alpha1.ReasonLanguageNotAllowed, "cobol",
		},
		"denied": {
			[]func(*v1alpha1.ToolCall){named("env"), func(c *v1alpha1.ToolCall) { c.Spec.Shell.Command = "  " }},
			v1alpha1.PhaseDenied, v1alpha1.ReasonEmptyCommand, "",
		},
		"protected-variable": {
			[]func(*v1alpha1.ToolCall){named("env"), func(c *v1alpha1.ToolCall) {
				c.Spec.Env = []v1alpha1.CallEnvVar{{Name: "LD_PRELOAD", Value: "x"}}
			}}, v1alpha1.PhaseDenied, v1alpha1.ReasonEnvNotAllowed, "LD_PRELOAD",
		},
		"unknown-tool": {
			[]func(*v1alpha1.ToolCall){named("env"), func(c *v1alpha1.ToolCall) {
				c.Spec.Shell = nil
				c.Spec.Tool = &v1alpha1.ToolAction{Name: "send_email"}
			}}, v1alpha1.PhaseDenied, v1alpha1.ReasonUnknownTool, "send_email",
		},
		"cancelled-at-once": {
			[]func(*v1alpha1.ToolCall){func(c *v1alpha1.ToolCall) { c.Spec.Cancel = true }},
			v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelRequested, "before",
		},
	} {
		t.Run(name, func(t *testing.T) {
			call := w.Call(name, tc.change...)
			w.Reconcile(call)
			s := w.Get(call).Status
			if s.Phase != tc.phase || s.Reason != tc.reason || !strings.Contains(s.Message, tc.says) {
				t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
			}
			if w.HasJob(call) {
				t.Error("a Job was made")
			}
			if tc.phase != v1alpha1.PhaseDenied && (s.RetrySafe == nil || !*s.RetrySafe) {
				t.Error("it is not said that a retry is safe")
			}
			if tc.phase == v1alpha1.PhaseDenied && s.Output != s.Message {
				t.Errorf("output is %q", s.Output)
			}
			if got := fixture.Condition(w.Get(call), v1alpha1.ConditionFinished); got != metav1.ConditionTrue {
				t.Errorf("Finished is %s", got)
			}
			select {
			case event := <-w.Events.Events:
				if !strings.Contains(event, tc.reason) {
					t.Errorf("the Event is %q", event)
				}
			default:
				t.Error("there is no Event")
			}
		})
	}
}

func TestTwoDefaultsRunNothing(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("a", fixture.AsDefault)
	w.Environment("b", fixture.AsDefault)
	call := w.Call("c")
	w.Reconcile(call)
	s := w.Get(call).Status
	if s.Reason != v1alpha1.ReasonInvalidEnvironment || !strings.Contains(s.Message, `["a" "b"]`) {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
}

func TestAnUnknownCallerMayNotUseTools(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", func(e *v1alpha1.ExecutionEnvironment) {
		fixture.AsDefault(e)
		e.Spec.PolicyRef = nil
	})
	call := w.Call("c", func(c *v1alpha1.ToolCall) {
		c.Spec.Shell = nil
		c.Spec.Structured = &v1alpha1.StructuredAction{Binary: "ls"}
		c.Spec.RequestedBy = &v1alpha1.Requester{Username: "somebody", Groups: []string{"system:masters"}}
	})
	w.Reconcile(call)
	s := w.Get(call).Status
	if s.Reason != v1alpha1.ReasonAgentNotAllowed || !strings.Contains(s.Message, "toolcall-identity") {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
}
