package controllers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/result"
)

// openPolicy lets anybody run anything, so that tests of the lifecycle need no identity.
func (w *world) openPolicy() string {
	name := "open-" + w.namespace
	policy := &v1alpha1.ExecutionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ExecutionPolicySpec{
			Access: v1alpha1.AccessOpen,
			Shell:  &v1alpha1.ShellPolicy{Enabled: ptr.To(true)},
		},
	}
	w.t.Helper()
	if err := w.client.Create(context.Background(), policy); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.client.Delete(context.Background(), policy) })
	return name
}

func (w *world) environment(name string, change ...func(*v1alpha1.ExecutionEnvironment)) *v1alpha1.ExecutionEnvironment {
	env := &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "example.com/tools:1", PolicyName: w.openPolicyOnce()},
	}
	for _, c := range change {
		c(env)
	}
	w.create(env)
	return env
}

func (w *world) openPolicyOnce() string {
	name := "open-" + w.namespace
	if err := w.client.Get(context.Background(), types.NamespacedName{Name: name}, &v1alpha1.ExecutionPolicy{}); err == nil {
		return name
	}
	return w.openPolicy()
}

func asDefault(env *v1alpha1.ExecutionEnvironment) {
	env.Annotations[v1alpha1.AnnotationDefaultEnvironment] = "true"
}

func (w *world) call(name string, change ...func(*v1alpha1.ToolCall)) *v1alpha1.ToolCall {
	call := &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "echo hi"}},
	}
	for _, c := range change {
		c(call)
	}
	w.create(call)
	return call
}

func (w *world) job(call *v1alpha1.ToolCall) *batchv1.Job {
	w.t.Helper()
	job := &batchv1.Job{}
	if err := shared.GetAPIReader().Get(context.Background(), types.NamespacedName{Namespace: w.namespace, Name: jobspec.Name(call)}, job); err != nil {
		w.t.Fatalf("get the Job: %v", err)
	}
	return job
}

func (w *world) hasJob(call *v1alpha1.ToolCall) bool {
	err := shared.GetAPIReader().Get(context.Background(), types.NamespacedName{Namespace: w.namespace, Name: jobspec.Name(call)}, &batchv1.Job{})
	return !apierrors.IsNotFound(err)
}

// pod makes the pod that the Job controller would make.
func (w *world) pod(job *batchv1.Job) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: job.Name + "-pod", Labels: job.Spec.Template.Labels, Annotations: job.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: ptr.To(true)}},
		},
		Spec: job.Spec.Template.Spec,
	}
	pod.Spec.ServiceAccountName = ""
	w.create(pod)
	return pod
}

// podStatus plays the kubelet.
func (w *world) podStatus(pod *corev1.Pod, change func(*corev1.PodStatus)) {
	w.t.Helper()
	change(&pod.Status)
	if err := w.client.Status().Update(context.Background(), pod); err != nil {
		w.t.Fatal(err)
	}
}

// runner is the real other end: a connection that says hello for a pod.
type runner struct {
	t      *testing.T
	config *dial.Config
	conn   *dial.Conn
}

func (w *world) runner(job *batchv1.Job, pod *corev1.Pod) *runner {
	w.t.Helper()
	env := map[string]string{
		wire.EnvEndpoints: w.address, wire.EnvCA: w.identity.CA(),
		wire.EnvToken:     w.identity.Token(w.namespace, job.Name, string(job.UID)),
		wire.EnvNamespace: w.namespace,
		wire.EnvJob:       job.Name, wire.EnvJobUID: string(job.UID),
		wire.EnvPod: pod.Name, wire.EnvPodUID: string(pod.UID), wire.EnvNode: "node-1",
	}
	if owner := job.OwnerReferences[0]; owner.Kind == "ToolCall" {
		env[wire.EnvCall] = owner.Name
	} else {
		env[wire.EnvPool] = owner.Name
	}
	config, err := dial.FromEnv(func(name string) string { return env[name] })
	if err != nil {
		w.t.Fatal(err)
	}
	r := &runner{t: w.t, config: config}
	r.connect(w, "")
	return r
}

// connect dials, and waits until the hub has the session.
func (r *runner) connect(w *world, callUID string) {
	r.t.Helper()
	r.config.Endpoints = []string{w.address}
	conn, err := r.config.Dial(context.Background(), dial.Call{UID: callUID, Name: r.config.Hello.Call})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(conn.Close)
	r.conn = conn
	eventually(r.t, func() bool {
		s := w.hub.Session(r.config.Hello.JobUID)
		return s != nil && s.CallUID() == callUID
	})
}

func (r *runner) receive() *wire.Message {
	r.t.Helper()
	m, err := r.conn.Receive()
	if err != nil {
		r.t.Fatalf("receive: %v", err)
	}
	return m
}

func (r *runner) report(w *world, uid types.UID, outcome result.Outcome) {
	r.t.Helper()
	if err := r.conn.Send(&wire.Message{Result: &wire.Result{CallUID: string(uid), Outcome: outcome}}); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, func() bool { return w.hub.Session(r.config.Hello.JobUID).Result() != nil })
}

func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatal("what was waited for did not happen")
}

var completed = result.Outcome{
	Reason: result.Completed, Started: true, ExitCode: result.Exit(0),
	StartTime: time.Unix(1000, 0), CompletionTime: time.Unix(1001, 0), DurationMS: 1000,
	Stdout: result.Stream{Head: []byte("hi\n"), Bytes: 3, SHA256: "98ea6e4f216f2fb4b69fff9b3a44842c38686ca685f3f55dc48c5d3fb1107be4"},
	Stderr: result.Stream{SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
}

func condition(call *v1alpha1.ToolCall, kind string) metav1.ConditionStatus {
	c := meta.FindStatusCondition(call.Status.Conditions, kind)
	if c == nil {
		return "absent"
	}
	return c.Status
}

func TestACallGoesFromCreationToItsResult(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c")

	w.reconcile(call)
	now := w.get(call)
	if now.Status.Phase != v1alpha1.PhasePending || condition(now, v1alpha1.ConditionAccepted) != metav1.ConditionTrue || condition(now, v1alpha1.ConditionFinished) != metav1.ConditionFalse {
		t.Fatalf("after the first pass the status is %+v", now.Status)
	}
	job := w.job(call)
	r := w.runner(job, w.pod(job))
	w.reconcile(call)
	now = w.get(call)
	if now.Status.Phase != v1alpha1.PhaseRunning || now.Status.Runner == nil || now.Status.Node != "node-1" {
		t.Fatalf("with its runner there the status is %+v", now.Status)
	}
	assigned := r.receive().Assign
	if assigned == nil || assigned.CallUID != string(call.UID) || strings.Join(assigned.Argv, " ") != "bash -c echo hi" {
		t.Fatalf("assigned %+v", assigned)
	}
	r.report(w, call.UID, completed)
	w.reconcile(call)
	if r.receive().Ack == nil {
		t.Error("the result was not acknowledged")
	}
	now = w.get(call)
	s := now.Status
	if s.Phase != v1alpha1.PhaseSucceeded || s.Reason != v1alpha1.ReasonCompleted || *s.ExitCode != 0 || s.Stdout != "hi\n" || *s.DurationMilliseconds != 1000 {
		t.Errorf("the end is %+v", s)
	}
	if s.Output != "hi\n\nTook 1.0s" {
		t.Errorf("output is %q", s.Output)
	}
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionStarted, v1alpha1.ConditionFinished, v1alpha1.ConditionSucceeded} {
		if condition(now, kind) != metav1.ConditionTrue {
			t.Errorf("condition %s is %s", kind, condition(now, kind))
		}
	}
}

func TestNothingIsWrittenWhenNothingChanged(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c")
	w.reconcile(call)
	job := w.job(call)
	r := w.runner(job, w.pod(job))
	w.reconcile(call)
	running := w.get(call).ResourceVersion
	for range 5 {
		w.reconcile(call)
	}
	if now := w.get(call).ResourceVersion; now != running {
		t.Errorf("a running call was written without need: %s, then %s", running, now)
	}
	r.receive()
	r.report(w, call.UID, completed)
	w.reconcile(call)
	ended := w.get(call).ResourceVersion
	for range 5 {
		w.reconcile(call)
	}
	if now := w.get(call).ResourceVersion; now != ended {
		t.Errorf("a finished call was written: %s, then %s", ended, now)
	}
}

// A crash between any two steps loses nothing and repeats nothing.
func TestACallSurvivesARestartOfTheOperatorAtEveryStep(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c")
	w.reconcile(call)
	w.restart()
	w.reconcile(call)
	job := w.job(call)
	r := w.runner(job, w.pod(job))
	w.reconcile(call)
	r.receive()
	bound := w.get(call).Status.Runner

	// The runner took the call; this operator doesn't know it yet.
	w.restart()
	w.reconcile(call)
	r.connect(w, string(call.UID))
	w.reconcile(call)
	if now := w.get(call); *now.Status.Runner != *bound || now.Status.Phase != v1alpha1.PhaseRunning {
		t.Fatalf("after the restart the status is %+v", now.Status)
	}
	r.report(w, call.UID, completed)

	// It reported, and nobody recorded it.
	w.restart()
	r.connect(w, string(call.UID))
	r.report(w, call.UID, completed)
	w.reconcile(call)
	if now := w.get(call); now.Status.Phase != v1alpha1.PhaseSucceeded {
		t.Fatalf("the result was lost: %+v", now.Status)
	}

	// It was recorded, and nobody acknowledged it.
	w.restart()
	r.connect(w, string(call.UID))
	r.report(w, call.UID, completed)
	w.reconcile(call)
	if r.receive().Ack == nil {
		t.Error("a result that was recorded before is not acknowledged")
	}
}

func TestAnAssignmentThatGotLostIsGivenToTheSameProcessOnly(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c")
	w.reconcile(call)
	job := w.job(call)
	pod := w.pod(job)
	first := w.runner(job, pod)
	w.reconcile(call)
	first.conn.Close()
	eventually(t, func() bool { return w.hub.Len() == 0 })

	other := w.runner(job, pod)
	w.reconcile(call)
	if now := w.get(call); now.Status.Phase != v1alpha1.PhaseRunning {
		t.Fatalf("another process changed the call: %+v", now.Status)
	}
	other.conn.Close()
	eventually(t, func() bool { return w.hub.Len() == 0 })

	first.connect(w, "")
	w.reconcile(call)
	if first.receive().Assign == nil {
		t.Error("the process that was recorded did not get its call again")
	}
}

func TestARunnerOfAnotherPodIsRefused(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c")
	w.reconcile(call)
	job := w.job(call)
	foreign := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}},
	}
	w.create(foreign)
	r := w.runner(job, foreign)
	w.reconcile(call)
	if m := r.receive(); m.Refuse == nil {
		t.Errorf("got %+v; want a refusal", m)
	}
	if now := w.get(call); now.Status.Runner != nil || now.Status.Phase != v1alpha1.PhasePending {
		t.Errorf("the status is %+v", now.Status)
	}
}

func TestAResultThatCannotBeIsNotRecorded(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c")
	w.reconcile(call)
	job := w.job(call)
	r := w.runner(job, w.pod(job))
	w.reconcile(call)
	r.receive()
	lie := completed
	lie.Stdout = result.Stream{Head: []byte("other\n"), Bytes: 6, SHA256: completed.Stdout.SHA256}
	r.report(w, call.UID, lie)
	w.reconcile(call)
	if now := w.get(call); now.Status.Phase != v1alpha1.PhaseRunning {
		t.Errorf("the status is %+v", now.Status)
	}
}

func TestAForgedJobIsNotRun(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c")
	w.create(&batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:        jobspec.Name(call),
			Annotations: map[string]string{jobspec.AnnotationPlan: `{"environment":"env","argvPrefix":["evil"]}`, jobspec.AnnotationSeal: "x"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "ToolCall", Name: call.Name, UID: call.UID, Controller: ptr.To(true),
			}},
		},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "x"}},
		}}},
	})
	w.reconcile(call)
	now := w.get(call)
	if now.Status.Phase != v1alpha1.PhaseFailed || now.Status.Reason != v1alpha1.ReasonPodRejected || !*now.Status.RetrySafe {
		t.Errorf("the status is %+v", now.Status)
	}
}

func TestCalls_ThatEndBeforeAnythingIsMade(t *testing.T) {
	w := newWorld(t)
	w.environment("env")
	w.environment("bad-policy", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.PolicyName = "missing" })
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
			call := w.call(name, tc.change...)
			w.reconcile(call)
			s := w.get(call).Status
			if s.Phase != tc.phase || s.Reason != tc.reason || !strings.Contains(s.Message, tc.says) {
				t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
			}
			if w.hasJob(call) {
				t.Error("a Job was made")
			}
			if tc.phase != v1alpha1.PhaseDenied && (s.RetrySafe == nil || !*s.RetrySafe) {
				t.Error("it is not said that a retry is safe")
			}
			if tc.phase == v1alpha1.PhaseDenied && s.Output != s.Message {
				t.Errorf("output is %q", s.Output)
			}
			if got := condition(w.get(call), v1alpha1.ConditionFinished); got != metav1.ConditionTrue {
				t.Errorf("Finished is %s", got)
			}
			select {
			case event := <-w.events.Events:
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
	w := newWorld(t)
	w.environment("a", asDefault)
	w.environment("b", asDefault)
	call := w.call("c")
	w.reconcile(call)
	s := w.get(call).Status
	if s.Reason != v1alpha1.ReasonInvalidEnvironment || !strings.Contains(s.Message, `["a" "b"]`) {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
}

func TestAnUnknownCallerMayNotUseTools(t *testing.T) {
	w := newWorld(t)
	w.environment("env", func(e *v1alpha1.ExecutionEnvironment) {
		asDefault(e)
		e.Spec.PolicyName = ""
	})
	call := w.call("c", func(c *v1alpha1.ToolCall) {
		c.Spec.Shell = nil
		c.Spec.Structured = &v1alpha1.StructuredAction{Binary: "ls"}
		c.Spec.RequestedBy = &v1alpha1.Requester{Username: "somebody", Groups: []string{"system:masters"}}
	})
	w.reconcile(call)
	s := w.get(call).Status
	if s.Reason != v1alpha1.ReasonAgentNotAllowed || !strings.Contains(s.Message, "toolcall-requested-by") {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
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
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.environment("env", asDefault)
			call := w.call("c")
			w.reconcile(call)
			pod := w.pod(w.job(call))
			w.podStatus(pod, tc.status)
			w.reconcile(call)
			s := w.get(call).Status
			if s.Phase != v1alpha1.PhaseFailed || s.Reason != tc.reason || !strings.Contains(s.Message, tc.says) || !*s.RetrySafe {
				t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
			}
			eventually(t, func() bool { return !w.hasJob(call) || w.job(call).DeletionTimestamp != nil })
		})
	}
}

// The kubelet tries these again; the call waits for that, up to its start timeout.
func TestACallOutlastsWhatTheKubeletTriesAgain(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
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
			w.t = t
			call := w.call("c-" + strings.ReplaceAll(strings.ToLower(name), " ", "-"))
			w.reconcile(call)
			w.podStatus(w.pod(w.job(call)), func(s *corev1.PodStatus) {
				s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Reason: tc.reason, Message: tc.message},
				}}}
			})
			w.reconcile(call)
			if s := w.get(call).Status; s.Phase != v1alpha1.PhasePending {
				t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
			}
		})
	}
}

func TestTheCredentialIsMadeAgainWhenItIsMissing(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c")
	w.reconcile(call)
	job := w.job(call)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: job.Name}}
	if err := w.client.Delete(context.Background(), secret); err != nil {
		t.Fatal(err)
	}
	w.podStatus(w.pod(job), func(s *corev1.PodStatus) {
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: `secret "` + job.Name + `" not found`},
		}}}
	})
	w.reconcile(call)
	if err := shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	if string(secret.Data[jobspec.TokenKey]) != w.identity.Token(w.namespace, job.Name, string(job.UID)) {
		t.Error("the credential that was made again is another one")
	}
	if now := w.get(call); now.Status.Phase != v1alpha1.PhasePending {
		t.Errorf("the call ended: %+v", now.Status)
	}
}

func TestACallThatDoesNotStartInTimeEnds(t *testing.T) {
	w := newWorld(t)
	w.environment("env", func(e *v1alpha1.ExecutionEnvironment) { asDefault(e); e.Spec.StartTimeoutSeconds = ptr.To(int32(30)) })
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
			w.clock.now = time.Now()
			call := w.call(name)
			w.reconcile(call)
			w.podStatus(w.pod(w.job(call)), tc.status)
			if wake := w.reconcile(call).RequeueAfter; wake <= 0 || wake > 31*time.Second {
				t.Errorf("looks again after %s", wake)
			}
			w.clock.now = w.clock.now.Add(31 * time.Second)
			w.reconcile(call)
			if s := w.get(call).Status; s.Reason != tc.reason || !*s.RetrySafe {
				t.Errorf("ended %s: %s", s.Reason, s.Message)
			}
		})
	}
}

// bound brings a call to where its command may run, and takes its runner away.
func (w *world) bound(name string, change ...func(*v1alpha1.ToolCall)) (*v1alpha1.ToolCall, *corev1.Pod) {
	w.t.Helper()
	call := w.call(name, change...)
	w.reconcile(call)
	job := w.job(call)
	pod := w.pod(job)
	r := w.runner(job, pod)
	w.reconcile(call)
	r.conn.Close()
	eventually(w.t, func() bool { return w.hub.Len() == 0 })
	return call, pod
}

func TestWhatAPodLeavesBehindIsAllThereIs(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	terminated := func(reason, message string) func(*corev1.PodStatus) {
		return func(s *corev1.PodStatus) {
			s.Phase = corev1.PodFailed
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: reason, Message: message},
			}}}
		}
	}
	words := func(call *v1alpha1.ToolCall, token string) string {
		return string(wire.NewLastWords(token, string(call.UID), result.EncodeTermination(&completed)).Encode())
	}
	for name, tc := range map[string]struct {
		status  func(*v1alpha1.ToolCall, *batchv1.Job) func(*corev1.PodStatus)
		reason  string
		hasExit bool
	}{
		"nothing": {func(*v1alpha1.ToolCall, *batchv1.Job) func(*corev1.PodStatus) { return terminated("Error", "") }, v1alpha1.ReasonPodLost, false},
		"oom":     {func(*v1alpha1.ToolCall, *batchv1.Job) func(*corev1.PodStatus) { return terminated("OOMKilled", "") }, v1alpha1.ReasonOOMKilled, true},
		"copy": {func(c *v1alpha1.ToolCall, j *batchv1.Job) func(*corev1.PodStatus) {
			return terminated("Completed", words(c, w.identity.Token(w.namespace, j.Name, string(j.UID))))
		}, v1alpha1.ReasonCompleted, true},
		"forged": {func(c *v1alpha1.ToolCall, _ *batchv1.Job) func(*corev1.PodStatus) {
			return terminated("Completed", words(c, "guess"))
		}, v1alpha1.ReasonPodLost, false},
	} {
		t.Run(name, func(t *testing.T) {
			call, pod := w.bound(name)
			w.podStatus(pod, tc.status(call, w.job(call)))
			w.reconcile(call)
			s := w.get(call).Status
			if s.Reason != tc.reason || (s.ExitCode != nil) != tc.hasExit {
				t.Errorf("ended %s, exit code %v: %s", s.Reason, s.ExitCode, s.Message)
			}
			if s.Reason == v1alpha1.ReasonPodLost && (s.RetrySafe == nil || *s.RetrySafe) {
				t.Error("a retry is called safe")
			}
		})
	}
}

func TestAPodThatIsGoneIsLostAndNotRunAgain(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call, pod := w.bound("c")
	w.reconcile(call)
	if s := w.get(call).Status; s.Phase != v1alpha1.PhaseRunning {
		t.Fatalf("a call whose runner is away for a moment ended: %s", s.Reason)
	}
	if err := w.client.Delete(context.Background(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	w.reconcile(call)
	s := w.get(call).Status
	if s.Reason != v1alpha1.ReasonPodLost || *s.RetrySafe || s.ExitCode != nil {
		t.Errorf("ended %s", s.Reason)
	}
}

func TestACallWhosePodIsSilentEndsAtItsDeadline(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call, _ := w.bound("c", func(c *v1alpha1.ToolCall) { c.Spec.TimeoutSeconds = ptr.To(int32(10)) })
	w.clock.now = w.clock.now.Add(10*time.Second + 5*time.Second + 30*time.Second)
	w.reconcile(call)
	if s := w.get(call).Status; s.Phase != v1alpha1.PhaseRunning {
		t.Fatalf("ended early: %s", s.Reason)
	}
	w.clock.now = w.clock.now.Add(time.Minute)
	w.reconcile(call)
	if s := w.get(call).Status; s.Reason != v1alpha1.ReasonPodLost {
		t.Errorf("ended %s", s.Reason)
	}
}

func TestTheCallKeepsWhatItStartedWith(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", func(e *v1alpha1.ExecutionEnvironment) {
		asDefault(e)
		e.Spec.Env = []v1alpha1.EnvVar{{Name: "A", Value: "before"}}
	})
	call := w.call("c")
	w.reconcile(call)
	job := w.job(call)
	if err := w.client.Delete(context.Background(), env); err != nil {
		t.Fatal(err)
	}
	w.restart()
	r := w.runner(job, w.pod(job))
	w.reconcile(call)
	assigned := r.receive().Assign
	if assigned == nil || len(assigned.Environment.Layers) != 1 || assigned.Environment.Layers[0].Vars[0].Value != "before" {
		t.Errorf("assigned %+v", assigned)
	}
}

func TestFinishedCallsGoWhenTheirTimeIsUp(t *testing.T) {
	w := newWorld(t)
	w.environment("env", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.TTLSecondsAfterFinished = ptr.To(int32(100)) })
	for name, tc := range map[string]struct {
		own    *int32
		env    string
		expect time.Duration
	}{
		"own":         {ptr.To(int32(10)), "env", 10 * time.Second},
		"environment": {nil, "env", 100 * time.Second},
		"default":     {nil, "nowhere", time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			w.clock.now = time.Now().Truncate(time.Second)
			call := w.call(name, func(c *v1alpha1.ToolCall) {
				c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: tc.env}
				c.Spec.TTLSecondsAfterFinished = tc.own
				c.Spec.Shell.Command = " "
			})
			w.reconcile(call)
			w.clock.now = w.clock.now.Add(tc.expect - time.Second)
			w.reconcile(call)
			w.get(call)
			w.clock.now = w.clock.now.Add(2 * time.Second)
			go func() { _ = w.reconciler.Expiry.Start(t.Context()) }()
			if again := <-w.expired; again != name {
				t.Errorf("looks again at %s", again)
			}
			w.reconcile(call)
			err := shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(call), &v1alpha1.ToolCall{})
			if !apierrors.IsNotFound(err) {
				t.Errorf("the call is still there: %v", err)
			}
		})
	}
}

func TestADeletedCallDismissesItsRunner(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c")
	w.reconcile(call)
	job := w.job(call)
	r := w.runner(job, w.pod(job))
	w.reconcile(call)
	r.receive()
	if err := w.client.Delete(context.Background(), call); err != nil {
		t.Fatal(err)
	}
	w.reconcile(call)
	if m := r.receive(); m.Refuse == nil {
		t.Errorf("got %+v; want a refusal", m)
	}
}
