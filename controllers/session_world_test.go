package controllers_test

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/jobspec"
)

// session creates one, in a cluster that has the Node of all pods.
func (w *world) session(name string, change ...func(*v1alpha1.ToolSession)) *v1alpha1.ToolSession {
	w.t.Helper()
	w.node("node-1")
	s := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, c := range change {
		c(s)
	}
	w.create(s)
	return s
}

// vouchForRequesters has admission say who made each session and each call from now on, until the test ends.
func (w *world) vouchForRequesters() {
	w.t.Helper()
	w.withAdmission()
	eventually(w.t, func() bool {
		probe := lsCall(w.namespace, "probe")
		probe.CreationTimestamp = metav1.Now()
		err := w.client.Create(context.Background(), probe, client.DryRunAll, client.DisableReadYourWritesConsistency)
		if err != nil {
			return false
		}
		known, _, _ := w.reconciler.Requesters.Vouched(context.Background(), probe)
		return known
	})
}

// node makes a Node, unless there is one.
func (w *world) node(name string) {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := w.client.Create(context.Background(), node, client.DisableReadYourWritesConsistency); err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
}

func withWorkspace(s *v1alpha1.ToolSession) {
	s.Spec.Workspace = &v1alpha1.SessionWorkspace{Size: resource.MustParse("1Gi")}
}

func keepingWorkspace(s *v1alpha1.ToolSession) {
	withWorkspace(s)
	s.Spec.Workspace.Retain = v1alpha1.RetainKeep
}

func askedBy(user string) func(*v1alpha1.ToolSession) {
	return func(s *v1alpha1.ToolSession) { s.Spec.RequestedBy = &v1alpha1.Requester{Username: user} }
}

// keep runs one pass over a session.
func (w *world) keep(s *v1alpha1.ToolSession) ctrl.Result {
	w.t.Helper()
	result, err := w.sessions.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
	if err != nil {
		w.t.Fatalf("reconcile session %s: %v", s.Name, err)
	}
	return result
}

// settle runs passes until two in a row change nothing.
func (w *world) settle(s *v1alpha1.ToolSession) {
	w.t.Helper()
	for range 20 {
		before, there := w.find(s)
		w.keep(s)
		after, still := w.find(s)
		if !still || there && before.ResourceVersion == after.ResourceVersion {
			return
		}
	}
	w.t.Fatal("the session doesn't come to rest")
}

// find reads a session past the cache.
func (w *world) find(s *v1alpha1.ToolSession) (now *v1alpha1.ToolSession, found bool) {
	w.t.Helper()
	now = &v1alpha1.ToolSession{}
	err := shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(s), now)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return now, err == nil
}

func (w *world) getSession(s *v1alpha1.ToolSession) *v1alpha1.ToolSession {
	w.t.Helper()
	now, found := w.find(s)
	if !found {
		w.t.Fatalf("session %s is gone", s.Name)
	}
	return now
}

// expect compares a session's phase and reason.
func (w *world) expect(s *v1alpha1.ToolSession, phase v1alpha1.SessionPhase, reason string) *v1alpha1.ToolSession {
	w.t.Helper()
	now := w.getSession(s)
	if now.Status.Phase != phase || now.Status.Reason != reason {
		w.t.Fatalf("session %s is %s/%s (%s), want %s/%s", s.Name, now.Status.Phase, now.Status.Reason, now.Status.Message, phase, reason)
	}
	ready := meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ConditionReady)
	ended := meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ConditionEnded)
	if ready != (phase == v1alpha1.SessionReady) || ended != (phase == v1alpha1.SessionEnded) || len(now.Status.Conditions) != 2 {
		w.t.Errorf("session %s is %s with conditions %+v", s.Name, phase, now.Status.Conditions)
	}
	return now
}

// editSession changes a session's spec.
func (w *world) editSession(s *v1alpha1.ToolSession, change func(*v1alpha1.ToolSessionSpec)) {
	w.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now := w.getSession(s)
		change(&now.Spec)
		return w.client.Update(context.Background(), now)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) deleteSession(s *v1alpha1.ToolSession) {
	w.t.Helper()
	if err := w.client.Delete(context.Background(), s); err != nil {
		w.t.Fatal(err)
	}
}

// sessionJob is the Job that a session records, or the one of its next pod.
func (w *world) sessionJob(s *v1alpha1.ToolSession) (job *batchv1.Job, found bool) {
	w.t.Helper()
	now := w.getSession(s)
	name := now.Status.Job
	if name == "" {
		name = jobspec.SessionJobName(now, now.Status.Incarnation+1)
	}
	job = &batchv1.Job{}
	err := shared.GetAPIReader().Get(context.Background(), types.NamespacedName{Namespace: w.namespace, Name: name}, job)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return job, err == nil
}

// sessionRunner is the process in a session's pod.
type sessionRunner struct {
	*runner
	pod *corev1.Pod
	// begun is what made the process a session's; nil before that. ended is why it starts nothing any more.
	begun *wire.Begin
	ended string
	taken int
}

// startPod plays the Job controller and the kubelet: the session's pod is there, and its runner connects.
func (w *world) startPod(s *v1alpha1.ToolSession) *sessionRunner {
	w.t.Helper()
	job, found := w.sessionJob(s)
	if !found {
		w.t.Fatalf("session %s has no Job", s.Name)
	}
	pod := w.pod(job)
	return &sessionRunner{runner: w.runner(job, pod), pod: pod}
}

// readySession is a session whose runner has begun.
func (w *world) readySession(name string, change ...func(*v1alpha1.ToolSession)) (*v1alpha1.ToolSession, *sessionRunner) {
	w.t.Helper()
	s := w.session(name, change...)
	return s, w.makeReady(s)
}

// makeReady gives a session its pod.
func (w *world) makeReady(s *v1alpha1.ToolSession) *sessionRunner {
	w.t.Helper()
	w.settle(s)
	r := w.startPod(s)
	w.keep(s)
	r.hearBegin()
	w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	return r
}

func (r *sessionRunner) hearBegin() {
	r.t.Helper()
	m := r.receive()
	if m.Begin == nil {
		r.t.Fatalf("got %+v, want Begin", m)
	}
	r.begun = m.Begin
}

func (r *sessionRunner) hearEnd() {
	r.t.Helper()
	m := r.receive()
	if m.End == nil {
		r.t.Fatalf("got %+v, want End", m)
	}
	r.ended = m.End.Reason
}

// reconnect dials in again, for the session if the process has begun one.
func (r *sessionRunner) reconnect(w *world, held ...wire.Held) {
	r.t.Helper()
	r.conn.Close()
	if r.begun == nil {
		r.connect(w, "")
		return
	}
	r.config.Endpoints = []string{w.address}
	before := w.hub.Session(r.config.Hello.JobUID)
	conn, err := r.config.DialSession(context.Background(), &wire.Session{
		UID: r.begun.SessionUID, Name: r.begun.SessionName, Incarnation: r.begun.Incarnation, Taken: max(r.taken, len(held)), Held: len(held),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(conn.Close)
	for i := range held {
		if err := conn.Send(&wire.Message{Held: &held[i]}); err != nil {
			r.t.Fatal(err)
		}
	}
	r.conn = conn
	eventually(r.t, func() bool {
		s := w.hub.Session(r.config.Hello.JobUID)
		if s == nil || s == before {
			return false
		}
		_, serves := s.ToolSession()
		return serves && len(s.HeldCalls()) == len(held)
	})
}

// exit ends the process, as the kubelet reports it.
func (r *sessionRunner) exit(w *world, phase corev1.PodPhase) {
	r.t.Helper()
	w.disconnect(r.runner)
	w.podStatus(r.pod, func(s *corev1.PodStatus) { s.Phase = phase })
}

func (w *world) hasClaim(s *v1alpha1.ToolSession) bool {
	w.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	err := shared.GetAPIReader().Get(context.Background(), types.NamespacedName{Namespace: w.namespace, Name: jobspec.ClaimName(s)}, claim)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	// Nobody takes the finalizer of claims away here.
	return err == nil && claim.DeletionTimestamp == nil
}

// callIn is a call of a session.
func (w *world) callIn(s *v1alpha1.ToolSession, name string, change ...func(*v1alpha1.ToolCall)) *v1alpha1.ToolCall {
	w.t.Helper()
	inSession := func(c *v1alpha1.ToolCall) { c.Spec.SessionRef = &v1alpha1.SessionReference{Name: s.Name} }
	return w.call(name, append([]func(*v1alpha1.ToolCall){inSession}, change...)...)
}

func background(c *v1alpha1.ToolCall) { c.Spec.Background = true }

// waits says in the call's status that it was found to be allowed and waits for its session.
func (w *world) waits(c *v1alpha1.ToolCall, s *v1alpha1.ToolSession) {
	w.t.Helper()
	w.writeCall(c, func(status *v1alpha1.ToolCallStatus) {
		status.Phase = v1alpha1.PhasePending
		status.Session = &v1alpha1.CallSessionStatus{Name: s.Name}
	})
}

// finishCall ends a call, as the controller of calls does.
func (w *world) finishCall(c *v1alpha1.ToolCall) {
	w.t.Helper()
	w.writeCall(c, func(status *v1alpha1.ToolCallStatus) { status.Phase = v1alpha1.PhaseSucceeded })
	eventually(w.t, func() bool {
		return apierrors.IsNotFound(w.client.Get(context.Background(), client.ObjectKeyFromObject(c), &v1alpha1.ToolCall{}))
	})
}

func (w *world) writeCall(c *v1alpha1.ToolCall, change func(*v1alpha1.ToolCallStatus)) {
	w.t.Helper()
	now := w.get(c)
	change(&now.Status)
	if err := w.client.Status().Update(context.Background(), now, client.DisableReadYourWritesConsistency); err != nil {
		w.t.Fatal(err)
	}
	eventually(w.t, func() bool {
		seen := &v1alpha1.ToolCall{}
		err := w.client.Get(context.Background(), client.ObjectKeyFromObject(c), seen)
		return apierrors.IsNotFound(err) || err == nil && seen.ResourceVersion == now.ResourceVersion
	})
}

func isHeldByFinalizer(s *v1alpha1.ToolSession) bool {
	return s.IsHeld()
}

func seconds(n int32) *int32 { return ptr.To(n) }

// pass time, and look.
func (w *world) keepAfter(d time.Duration, s *v1alpha1.ToolSession) {
	w.t.Helper()
	w.elapse(d)
	w.settle(s)
}

// expectNothingToRead checks that the runner was told nothing more: the next thing that it hears is the answer to a dismissal
// by the test.
func (r *sessionRunner) expectQuiet(w *world) {
	r.t.Helper()
	s := w.hub.Session(r.config.Hello.JobUID)
	if s == nil {
		r.t.Fatal("the runner isn't connected")
	}
	s.Refuse("the test is over")
	for {
		m, err := r.conn.Receive()
		switch {
		case err != nil:
			r.t.Fatal("the connection ended without the refusal")
		case m.Refuse != nil && m.Refuse.Reason == "the test is over":
			return
		case m.End != nil && m.End.Reason == v1alpha1.ReasonSessionEnded:
			// Of the refusal.
		default:
			r.t.Fatalf("the runner was told %+v", m)
		}
	}
}

// keepError runs one pass that may fail.
func (w *world) keepError(s *v1alpha1.ToolSession) error {
	w.t.Helper()
	_, err := w.sessions.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
	return err
}

// waitingFor is a container that the kubelet can't start yet.
func waitingFor(reason string) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		s.Phase = corev1.PodPending
		s.ContainerStatuses = []corev1.ContainerStatus{{
			Name: jobspec.ContainerName, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "no"}},
		}}
	}
}

// running is a call that runs in a session's runner.
func running(c *v1alpha1.ToolCall) wire.Held {
	return wire.Held{UID: string(c.UID), Name: c.Name, State: wire.Running, Decision: "sealed"}
}

// withoutCalls is a cache that is behind: it has no calls.
type withoutCalls struct{ client.Client }

// List implements client.Reader.
func (c withoutCalls) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*v1alpha1.ToolCallList); ok {
		return nil
	}
	return c.Client.List(ctx, list, opts...)
}

// outdated is a cache that is behind: it has a session as it was.
type outdated struct {
	client.Client
	session *v1alpha1.ToolSession
}

// Get implements client.Reader.
func (c outdated) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if session, ok := o.(*v1alpha1.ToolSession); ok && key == client.ObjectKeyFromObject(c.session) {
		c.session.DeepCopyInto(session)
		return nil
	}
	return c.Client.Get(ctx, key, o, opts...)
}
