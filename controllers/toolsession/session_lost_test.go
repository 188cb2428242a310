package toolsession_test

import (
	"context"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/testing/fixture"
)

// What proves that a session's process is gone, and what doesn't.
func TestASessionEndsOnlyWhenItsProcessIsKnownToBeGone(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(*fixture.World, *v1alpha1.ToolSession, *fixture.SessionRunner)
		gone    bool
	}{
		"nothing is known": {func(*fixture.World, *v1alpha1.ToolSession, *fixture.SessionRunner) {}, false},
		"the pod's object is missing": {
			func(w *fixture.World, _ *v1alpha1.ToolSession, r *fixture.SessionRunner) { w.Force(r.Pod) }, false,
		},
		"the pod is being deleted": {
			func(w *fixture.World, _ *v1alpha1.ToolSession, r *fixture.SessionRunner) {
				r.Pod.Finalizers = []string{"example.com/held"}
				if err := w.Client.Update(context.Background(), r.Pod); err != nil {
					w.T.Fatal(err)
				}
				w.Force(r.Pod)
			}, false,
		},
		"the kubelet says that the container has terminated": {
			func(w *fixture.World, _ *v1alpha1.ToolSession, r *fixture.SessionRunner) {
				w.PodStatus(r.Pod, fixture.Terminated("Error", ""))
			}, true,
		},
		"the pod has succeeded": {
			func(w *fixture.World, _ *v1alpha1.ToolSession, r *fixture.SessionRunner) {
				w.PodStatus(r.Pod, func(s *corev1.PodStatus) { s.Phase = corev1.PodSucceeded })
			}, true,
		},
		"the pod's object is missing, and the Job has failed": {
			func(w *fixture.World, s *v1alpha1.ToolSession, r *fixture.SessionRunner) {
				w.Force(r.Pod)
				w.FailJob(w.GetSession(s).Status.Job)
			}, true,
		},
		"the node is deleted": {
			func(w *fixture.World, s *v1alpha1.ToolSession, r *fixture.SessionRunner) {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.Config.Hello.Node}}
				if err := w.Client.Delete(context.Background(), node, client.DisableReadYourWritesConsistency); err != nil {
					w.T.Fatal(err)
				}
			}, true,
		},
		"the node is out of service": {
			func(w *fixture.World, s *v1alpha1.ToolSession, r *fixture.SessionRunner) {
				w.Taint(r.Config.Hello.Node, corev1.TaintNodeOutOfService)
			}, true,
		},
		"the node isn't reachable": {
			func(w *fixture.World, s *v1alpha1.ToolSession, r *fixture.SessionRunner) {
				w.Taint(r.Config.Hello.Node, corev1.TaintNodeUnreachable)
			}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			w.Environment("env", fixture.AsDefault)
			s, r := w.OnNode("node-" + w.Namespace)
			w.Disconnect(r.Runner)
			tc.happens(w, s, r)
			w.KeepAfter(time.Hour, s)
			if tc.gone {
				w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonPodLost)
				return
			}
			w.Expect(s, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
			r.Reconnect(w)
			w.Settle(s)
			if now := w.Expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady); now.Status.Incarnation != 1 || now.Status.Runner.KeyHash != w.Hub.Runner(r.Config.Hello.JobUID).KeyHash() {
				t.Error("the session has another process")
			}
		})
	}
}

// All runners dial in again: until they had the time, nothing is said of those that haven't.
func TestAfterARestartSessionsAreGivenTimeToBeHeard(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s")
	r.Conn.Close()
	w.Restart()
	before := w.GetSession(s).ResourceVersion
	w.KeepAfter(dispatch.ReconnectWait-time.Second, s)
	if w.GetSession(s).ResourceVersion != before {
		t.Error("the session was written")
	}
	w.KeepAfter(2*time.Second, s)
	w.Expect(s, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
}

// A waiting process that was given to a call meanwhile was never the session's: nothing is lost.
func TestASessionWhosePodWasGivenToACallTakesAnother(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	var r *fixture.SessionRunner
	for _, one := range w.WarmUp(env) {
		r = &fixture.SessionRunner{Runner: one}
	}
	s := w.Session("s")
	w.Settle(s)
	r.Conn.Close()
	r.Connect(w, "some-call")
	w.Settle(s)
	now := w.Expect(s, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
	if name := r.Config.Hello.Job; now.Status.Job == name || !w.HasNamedJob(name) {
		t.Errorf("the session has Job %s, and before it %s, which is another's", now.Status.Job, name)
	}
	if next := w.MakeReady(s); next.Begun.Incarnation != 2 {
		t.Errorf("begun: %+v", next.Begun)
	}
}

// An ended session's calls end by what their runner says. One that isn't heard of has its pod ended.
func TestThePodOfAnEndedSessionThatIsNotHeardOfIsEnded(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s")
	call := w.CallIn(s, "c")
	name := w.GetSession(s).Status.Job
	w.Disconnect(r.Runner)
	w.EditSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonEndRequested)
	w.KeepAfter(20*time.Second, s)
	if deadline := w.JobNamed(name).Spec.ActiveDeadlineSeconds; *deadline == 1 {
		t.Fatal("the pod is ended before its runner had time")
	}
	w.KeepAfter(20*time.Second, s)
	if deadline := w.JobNamed(name).Spec.ActiveDeadlineSeconds; *deadline != 1 {
		t.Errorf("the Job's deadline is %d s", *deadline)
	}
	// The end of a session is told to a runner that comes back.
	r.Reconnect(w, running(call))
	w.Settle(s)
	r.HearEnd()
	w.FinishCall(call)
	w.Settle(s)
	if w.HasNamedJob(name) {
		t.Error("the Job is there")
	}
}

// What somebody else put in the place of the session's Job isn't its own.
func TestAJobOfSomebodyElseIsNotTheSessions(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s := w.Session("s")
	w.Settle(s)
	job, _ := w.SessionJob(s)
	foreign := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: job.Name, Labels: job.Labels, OwnerReferences: job.OwnerReferences, Annotations: job.Annotations}}
	foreign.Spec.Template.Spec = *job.Spec.Template.Spec.DeepCopy()
	foreign.Spec.Template.Labels = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}
	foreign.Spec.Template.Spec.Containers[0].Image = "example.com/evil:1"
	if err := w.Client.Delete(context.Background(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, func() bool { return !w.HasNamedJob(job.Name) })
	w.Create(foreign)
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonStartFailed)
	if !w.HasNamedJob(job.Name) {
		t.Error("somebody else's Job was deleted")
	}
}

// What a session began with is sealed for it and its process: a status that somebody changed counts for nothing.
func TestAnOriginCountsForItsSessionAndProcessAlone(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s", fixture.WithWorkspace)
	other, _ := w.ReadySession("other", fixture.WithWorkspace)
	now := w.GetSession(s)
	now.Status.Runner.Decision = w.GetSession(other).Status.Runner.Decision
	if err := w.Client.Status().Update(context.Background(), now); err != nil {
		t.Fatal(err)
	}
	w.Disconnect(r.Runner)
	w.PodStatus(r.Pod, fixture.Terminated("Error", ""))
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonStartFailed)
	if _, found := w.SessionJob(s); found {
		t.Errorf("the session has Job %s", jobspec.SessionJobName(now, 2))
	}
}

// A recorded process that says that it serves another incarnation has the session's calls all the same.
func TestASessionIsNotGivenOnWhileItsProcessMayHaveItsCalls(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.ToolSession){"with a claim": fixture.WithWorkspace, "without one": func(*v1alpha1.ToolSession) {}} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			w.VouchForRequesters()
			w.Environment("env", fixture.AsDefault)
			s, r := w.ReadySession("s", change)
			call := w.CallIn(s, "c")
			r.HandOver(w, call)
			w.Elapse(3 * time.Second)
			w.Reconcile(call)
			again := *r.Begun
			again.Incarnation = 2
			r.Begun = &again
			r.Reconnect(w)
			w.Settle(s)
			if s.Spec.Workspace == nil {
				w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonPodLost)
				return
			}
			now := w.Expect(s, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
			if now.Status.Pod == "" || now.Status.Job == "" {
				t.Error("another process gets the session, and a call runs in this one")
			}
			if job, _ := w.SessionJob(s); *job.Spec.ActiveDeadlineSeconds != 1 {
				t.Error("the process, which can't be told to end its calls, goes on")
			}
			w.WriteCall(call, func(status *v1alpha1.ToolCallStatus) { status.Phase = v1alpha1.PhaseFailed })
			w.Settle(s)
			if now := w.GetSession(s); now.Status.Pod != "" {
				t.Errorf("its calls have ended, and pod %s has the session still", now.Status.Pod)
			}
		})
	}
}

// A runner that names another Node than its pod's would have itself proven gone.
func TestASessionsNodeIsThatOfItsPod(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s := w.Session("s")
	w.Settle(s)
	job, _ := w.SessionJob(s)
	r := &fixture.Runner{T: t, Config: w.RunnerConfig(job, w.PodOn(job, "node-1"))}
	r.Config.Hello.Node = "none-such"
	r.Connect(w, "")
	w.Keep(s)
	if now := w.Expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady); now.Status.Node != "node-1" {
		t.Errorf("the session's node is %q", now.Status.Node)
	}
}
