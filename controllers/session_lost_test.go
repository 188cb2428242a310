package controllers_test

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
)

// onNode is a session whose pod runs on a Node of its own.
func (w *world) onNode(node string) (*v1alpha1.ToolSession, *sessionRunner) {
	w.t.Helper()
	w.node(node)
	s := w.session("s")
	w.settle(s)
	job, _ := w.sessionJob(s)
	pod := w.podOn(job, node)
	r := &sessionRunner{runner: &runner{t: w.t, config: w.runnerConfig(job, pod)}, pod: pod}
	r.config.Hello.Node = node
	r.connect(w, "")
	w.keep(s)
	r.hearBegin()
	return s, r
}

// force deletes a pod's object, whatever its kubelet says.
func (w *world) force(pod *corev1.Pod) {
	w.t.Helper()
	if err := w.client.Delete(context.Background(), pod, client.GracePeriodSeconds(0)); err != nil {
		w.t.Fatal(err)
	}
}

// failJob plays the Job controller when the Job's pod has ended.
func (w *world) failJob(name string) {
	w.t.Helper()
	job := w.jobNamed(name)
	job.Status.StartTime = ptr.To(metav1.Now())
	for _, kind := range []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	}
	if err := w.client.Status().Update(context.Background(), job); err != nil {
		w.t.Fatal(err)
	}
}

// What proves that a session's process is gone, and what doesn't.
func TestASessionEndsOnlyWhenItsProcessIsKnownToBeGone(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(*world, *v1alpha1.ToolSession, *sessionRunner)
		gone    bool
	}{
		"nothing is known": {func(*world, *v1alpha1.ToolSession, *sessionRunner) {}, false},
		"the pod's object is missing": {
			func(w *world, _ *v1alpha1.ToolSession, r *sessionRunner) { w.force(r.pod) }, false,
		},
		"the pod is being deleted": {
			func(w *world, _ *v1alpha1.ToolSession, r *sessionRunner) {
				r.pod.Finalizers = []string{"example.com/held"}
				if err := w.client.Update(context.Background(), r.pod); err != nil {
					w.t.Fatal(err)
				}
				w.force(r.pod)
			}, false,
		},
		"the kubelet says that the container has terminated": {
			func(w *world, _ *v1alpha1.ToolSession, r *sessionRunner) { w.podStatus(r.pod, terminated("Error", "")) }, true,
		},
		"the pod has succeeded": {
			func(w *world, _ *v1alpha1.ToolSession, r *sessionRunner) {
				w.podStatus(r.pod, func(s *corev1.PodStatus) { s.Phase = corev1.PodSucceeded })
			}, true,
		},
		"the pod's object is missing, and the Job has failed": {
			func(w *world, s *v1alpha1.ToolSession, r *sessionRunner) {
				w.force(r.pod)
				w.failJob(w.getSession(s).Status.Job)
			}, true,
		},
		"the node is deleted": {
			func(w *world, s *v1alpha1.ToolSession, r *sessionRunner) {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.config.Hello.Node}}
				if err := w.client.Delete(context.Background(), node, client.DisableReadYourWritesConsistency); err != nil {
					w.t.Fatal(err)
				}
			}, true,
		},
		"the node is out of service": {
			func(w *world, s *v1alpha1.ToolSession, r *sessionRunner) {
				w.taint(r.config.Hello.Node, corev1.TaintNodeOutOfService)
			}, true,
		},
		"the node isn't reachable": {
			func(w *world, s *v1alpha1.ToolSession, r *sessionRunner) {
				w.taint(r.config.Hello.Node, corev1.TaintNodeUnreachable)
			}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.environment("env", asDefault)
			s, r := w.onNode("node-" + w.namespace)
			w.disconnect(r.runner)
			tc.happens(w, s, r)
			w.keepAfter(time.Hour, s)
			if tc.gone {
				w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonPodLost)
				return
			}
			w.expect(s, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
			r.reconnect(w)
			w.settle(s)
			if now := w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady); now.Status.Incarnation != 1 || now.Status.Runner.KeyHash != w.hub.Session(r.config.Hello.JobUID).KeyHash() {
				t.Error("the session has another process")
			}
		})
	}
}

func (w *world) taint(node, key string) {
	w.t.Helper()
	patch := client.RawPatch("application/strategic-merge-patch+json", []byte(`{"spec":{"taints":[{"key":"`+key+`","effect":"NoExecute"}]}}`))
	if err := w.client.Patch(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch, client.DisableReadYourWritesConsistency); err != nil {
		w.t.Fatal(err)
	}
}

// All runners dial in again: until they had the time, nothing is said of those that haven't.
func TestAfterARestartSessionsAreGivenTimeToBeHeard(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, r := w.readySession("s")
	r.conn.Close()
	w.restart()
	before := w.getSession(s).ResourceVersion
	w.keepAfter(dispatch.ReconnectWait-time.Second, s)
	if w.getSession(s).ResourceVersion != before {
		t.Error("the session was written")
	}
	w.keepAfter(2*time.Second, s)
	w.expect(s, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
}

// A waiting process that was given to a call meanwhile was never the session's: nothing is lost.
func TestASessionWhosePodWasGivenToACallTakesAnother(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	var r *sessionRunner
	for _, one := range w.warmUp(env) {
		r = &sessionRunner{runner: one}
	}
	s := w.session("s")
	w.settle(s)
	r.conn.Close()
	r.connect(w, "some-call")
	w.settle(s)
	now := w.expect(s, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
	if name := r.config.Hello.Job; now.Status.Job == name || !w.hasNamedJob(name) {
		t.Errorf("the session has Job %s, and before it %s, which is another's", now.Status.Job, name)
	}
	if next := w.makeReady(s); next.begun.Incarnation != 2 {
		t.Errorf("begun: %+v", next.begun)
	}
}

// An ended session's calls end by what their runner says. One that isn't heard of has its pod ended.
func TestThePodOfAnEndedSessionThatIsNotHeardOfIsEnded(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, r := w.readySession("s")
	call := w.callIn(s, "c")
	name := w.getSession(s).Status.Job
	w.disconnect(r.runner)
	w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
	w.settle(s)
	w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonEndRequested)
	w.keepAfter(20*time.Second, s)
	if deadline := w.jobNamed(name).Spec.ActiveDeadlineSeconds; *deadline == 1 {
		t.Fatal("the pod is ended before its runner had time")
	}
	w.keepAfter(20*time.Second, s)
	if deadline := w.jobNamed(name).Spec.ActiveDeadlineSeconds; *deadline != 1 {
		t.Errorf("the Job's deadline is %d s", *deadline)
	}
	// The end of a session is told to a runner that comes back.
	r.reconnect(w, running(call))
	w.settle(s)
	r.hearEnd()
	w.finishCall(call)
	w.settle(s)
	if w.hasNamedJob(name) {
		t.Error("the Job is there")
	}
}

// What somebody else put in the place of the session's Job isn't its own.
func TestAJobOfSomebodyElseIsNotTheSessions(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s := w.session("s")
	w.settle(s)
	job, _ := w.sessionJob(s)
	foreign := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: job.Name, Labels: job.Labels, OwnerReferences: job.OwnerReferences, Annotations: job.Annotations}}
	foreign.Spec.Template.Spec = *job.Spec.Template.Spec.DeepCopy()
	foreign.Spec.Template.Labels = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}
	foreign.Spec.Template.Spec.Containers[0].Image = "example.com/evil:1"
	if err := w.client.Delete(context.Background(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return !w.hasNamedJob(job.Name) })
	w.create(foreign)
	w.settle(s)
	w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonStartFailed)
	if !w.hasNamedJob(job.Name) {
		t.Error("somebody else's Job was deleted")
	}
}

// What a session began with is sealed for it and its process: a status that somebody changed counts for nothing.
func TestAnOriginCountsForItsSessionAndProcessAlone(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, r := w.readySession("s", withWorkspace)
	other, _ := w.readySession("other", withWorkspace)
	now := w.getSession(s)
	now.Status.Runner.Decision = w.getSession(other).Status.Runner.Decision
	if err := w.client.Status().Update(context.Background(), now); err != nil {
		t.Fatal(err)
	}
	w.disconnect(r.runner)
	w.podStatus(r.pod, terminated("Error", ""))
	w.settle(s)
	w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonStartFailed)
	if _, found := w.sessionJob(s); found {
		t.Errorf("the session has Job %s", jobspec.SessionJobName(now, 2))
	}
}

// A recorded process that says that it serves another incarnation has the session's calls all the same.
func TestASessionIsNotGivenOnWhileItsProcessMayHaveItsCalls(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.ToolSession){"with a claim": withWorkspace, "without one": func(*v1alpha1.ToolSession) {}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.vouchForRequesters()
			w.environment("env", asDefault)
			s, r := w.readySession("s", change)
			call := w.callIn(s, "c")
			w.reconcile(call)
			if m := r.receive(); m.Assign == nil {
				t.Fatalf("got %+v", m)
			}
			w.elapse(3 * time.Second)
			w.reconcile(call)
			again := *r.begun
			again.Incarnation = 2
			r.begun = &again
			r.reconnect(w)
			w.settle(s)
			if s.Spec.Workspace == nil {
				w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonPodLost)
				return
			}
			now := w.expect(s, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
			if now.Status.Pod == "" || now.Status.Job == "" {
				t.Error("another process gets the session, and a call runs in this one")
			}
			if job, _ := w.sessionJob(s); *job.Spec.ActiveDeadlineSeconds != 1 {
				t.Error("the process, which can't be told to end its calls, goes on")
			}
			w.writeCall(call, func(status *v1alpha1.ToolCallStatus) { status.Phase = v1alpha1.PhaseFailed })
			w.settle(s)
			if now := w.getSession(s); now.Status.Pod != "" {
				t.Errorf("its calls have ended, and pod %s has the session still", now.Status.Pod)
			}
		})
	}
}

// A runner that names another Node than its pod's would have itself proven gone.
func TestASessionsNodeIsThatOfItsPod(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s := w.session("s")
	w.settle(s)
	job, _ := w.sessionJob(s)
	r := &runner{t: t, config: w.runnerConfig(job, w.podOn(job, "node-1"))}
	r.config.Hello.Node = "none-such"
	r.connect(w, "")
	w.keep(s)
	if now := w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady); now.Status.Node != "node-1" {
		t.Errorf("the session's node is %q", now.Status.Node)
	}
}
