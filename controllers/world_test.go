package controllers_test

import (
	"context"
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
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "example.com/tools:1", PolicyRef: &v1alpha1.PolicyReference{Name: w.openPolicyOnce()}},
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

// pod makes the pod that the Job controller would make. That of a session is on a Node.
func (w *world) pod(seen *batchv1.Job) *corev1.Pod {
	w.t.Helper()
	if jobspec.SessionOf(seen) != "" {
		return w.podOn(seen, "node-1")
	}
	return w.podOn(seen, "")
}

func (w *world) podOn(seen *batchv1.Job, node string) *corev1.Pod {
	w.t.Helper()
	// The cache has no templates.
	job := &batchv1.Job{}
	if err := shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(seen), job); err != nil {
		w.t.Fatalf("get the pod's Job: %v", err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: job.Name + "-pod", Labels: job.Spec.Template.Labels, Annotations: job.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: ptr.To(true)}},
		},
		Spec: job.Spec.Template.Spec,
	}
	pod.Spec.ServiceAccountName, pod.Spec.NodeName = "", node
	w.create(pod)
	return pod
}

func (w *world) podNamed(name string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{}
	if err := w.client.Get(context.Background(), types.NamespacedName{Namespace: w.namespace, Name: name}, pod); err != nil {
		w.t.Fatalf("get pod %s: %v", name, err)
	}
	return pod
}

// completeJob plays the Job controller when the Job's pod has ended well, and waits until the cache shows it.
func (w *world) completeJob(seen *batchv1.Job) {
	w.t.Helper()
	ctx, key := context.Background(), client.ObjectKeyFromObject(seen)
	job := &batchv1.Job{}
	if err := shared.GetAPIReader().Get(ctx, key, job); err != nil {
		w.t.Fatalf("get the Job: %v", err)
	}
	now := metav1.Now()
	job.Status.StartTime, job.Status.CompletionTime, job.Status.Succeeded = &now, &now, 1
	for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	if err := w.client.Status().Update(ctx, job); err != nil {
		w.t.Fatalf("complete the Job: %v", err)
	}
}

// podStatus plays the kubelet.
func (w *world) podStatus(pod *corev1.Pod, change func(*corev1.PodStatus)) {
	w.t.Helper()
	change(&pod.Status)
	var unseen []client.SubResourceUpdateOption
	if !cached(pod) {
		unseen = append(unseen, client.DisableReadYourWritesConsistency)
	}
	if err := w.client.Status().Update(context.Background(), pod, unseen...); err != nil {
		w.t.Fatal(err)
	}
	if !cached(pod) {
		eventually(w.t, func() bool {
			return apierrors.IsNotFound(w.client.Get(context.Background(), client.ObjectKeyFromObject(pod), &corev1.Pod{}))
		})
	}
}

// runner is the real other end: a connection that says hello for a pod.
type runner struct {
	t      *testing.T
	config *dial.Config
	conn   *dial.Conn
	// reportedOn is the connection that the result was sent on last.
	reportedOn *dial.Conn
}

// connect dials, and waits until the hub has the session.
func (r *runner) connect(w *world, callUID string) {
	r.t.Helper()
	r.config.Endpoints = []string{w.address}
	before := w.hub.Session(r.config.Hello.JobUID)
	conn, err := r.config.Dial(context.Background(), dial.Call{UID: callUID, Name: r.config.Hello.Call})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(conn.Close)
	r.conn = conn
	eventually(r.t, func() bool {
		s := w.hub.Session(r.config.Hello.JobUID)
		return s != nil && s != before && s.CallUID() == callUID
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
	if r.reportedOn == r.conn {
		// A runner sends its result once on each connection.
		return
	}
	r.reportedOn = r.conn
	if err := r.conn.Send(&wire.Message{Result: &wire.Result{CallUID: string(uid), Outcome: outcome}}); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, func() bool {
		// The connection before this one may be known to be gone before this one is known.
		s := w.hub.Session(r.config.Hello.JobUID)
		return s != nil && s.Result() != nil
	})
}

// start has the runner of an accepted call come, and the call given to it.
func (w *world) start(call *v1alpha1.ToolCall) *runner {
	w.t.Helper()
	job := w.job(call)
	r := w.runner(job, w.pod(job))
	w.reconcile(call)
	if m := r.receive(); m.Assign == nil {
		w.t.Fatalf("got %+v; want the call", m)
	}
	return r
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
