package controllers_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/jobspec"
)

func TestASessionGoesFromItsCreationToItsEnd(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s := w.session("s")

	w.settle(s)
	now := w.expect(s, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
	job, found := w.sessionJob(s)
	if !found || now.Status.Job != job.Name || !metav1.IsControlledBy(job, now) || now.Status.Environment.Name != "env" {
		t.Fatalf("the session says %+v; its Job: %v", now.Status, found)
	}
	if !isHeldByFinalizer(now) {
		t.Error("nothing holds the session's name")
	}

	r := w.startPod(s)
	w.keep(s)
	now = w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	r.hearBegin()
	b := now.Status.Runner
	if b == nil || b.PodUID != string(r.pod.UID) || now.Status.Pod != r.pod.Name || now.Status.Node != "node-1" || now.Status.Incarnation != 1 {
		t.Errorf("recorded: %+v", now.Status)
	}
	if r.begun.SessionUID != string(s.UID) || r.begun.SessionName != "s" || r.begun.Incarnation != 1 || r.begun.MaxCalls != 10000 || r.begun.MaxConcurrentCalls != 1 {
		t.Errorf("begun: %+v", r.begun)
	}
	if timings := now.Status.Timings; timings.Path != v1alpha1.PathCold || timings.ReadyMilliseconds == nil {
		t.Errorf("timings: %+v", timings)
	}
	w.settle(s)

	w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
	w.settle(s)
	now = w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonEndRequested)
	r.hearEnd()
	if now.Status.Runner.Decision != "" || now.Status.Runner.KeyHash == "" {
		t.Errorf("the ended session keeps %+v", now.Status.Runner)
	}
	if w.hasNamedJob(job.Name) || isHeldByFinalizer(now) {
		t.Error("the Job of the ended session is there, or its name is held")
	}
	w.keepAfter(59*time.Minute, s)
	w.getSession(s)
	w.keepAfter(2*time.Minute, s)
	w.keep(s)
	if _, found := w.find(s); found {
		t.Error("the session stays for longer than ttlSecondsAfterEnded")
	}
}

// A runner hears of its session only when that records it: one that is recorded nowhere could be given calls twice.
func TestARunnerIsRecordedBeforeItBegins(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s := w.session("s")
	w.settle(s)
	r := w.startPod(s)
	w.use = &flaky{Client: w.client, fail: func() failure { return timesOut }}
	w.rebuild()
	if w.keepError(s) == nil {
		t.Fatal("the write didn't fail")
	}
	w.use = nil
	w.rebuild()
	r.expectQuiet(w)
	if now := w.getSession(s); now.Status.Runner != nil {
		t.Errorf("recorded: %+v", now.Status.Runner)
	}
}

func TestASessionTakesAWaitingPod(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	var r *sessionRunner
	for _, one := range w.warmUp(env) {
		r = &sessionRunner{runner: one}
	}
	s := w.session("s")
	w.keep(s)
	now := w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	r.hearBegin()
	if now.Status.Timings.Path != v1alpha1.PathWarm || now.Status.Job != r.config.Hello.Job {
		t.Errorf("the session runs in %s (%s)", now.Status.Job, now.Status.Timings.Path)
	}
	job := w.jobNamed(now.Status.Job)
	if !metav1.IsControlledBy(job, now) || job.Spec.ActiveDeadlineSeconds == nil || job.Labels[jobspec.LabelSession] != string(s.UID) {
		t.Error("the Job isn't the session's own")
	}
	w.fill(env)
	if w.hosts.IsOffered(string(job.UID)) || !w.hasNamedJob(job.Name) || len(w.waiting(env)) != 1 {
		t.Error("the pool has the session's pod, or isn't refilled")
	}
	r.expectQuiet(w)
}

// The pod is the session's by what its status says, also before the Job says so: for an operator that has just started too.
func TestThePoolLeavesAPodAloneThatASessionRecords(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	var r *sessionRunner
	for _, one := range w.warmUp(env) {
		r = &sessionRunner{runner: one}
	}
	s := w.session("s")
	// The finalizer and the status are written, and then no more.
	left := 2
	w.use = &flaky{Client: w.client, fail: func() failure {
		if left--; left >= 0 {
			return succeeds
		}
		return timesOut
	}}
	w.rebuild()
	if w.keepError(s) == nil {
		t.Fatal("the Job was taken over")
	}
	r.hearBegin()
	w.use = nil
	w.restart()
	// One that didn't hear Begin waits.
	begun := r.begun
	r.begun = nil
	r.reconnect(w)
	w.fill(env)
	if name := r.config.Hello.Job; !w.hasNamedJob(name) || w.hosts.IsOffered(string(w.jobNamed(name).UID)) {
		t.Fatal("the pool took the session's pod")
	}
	r.begun = begun
	r.reconnect(w)
	w.fill(env)
	call := w.call("c")
	w.reconcile(call)
	if status := w.get(call).Status; status.Job == r.config.Hello.Job {
		t.Fatal("a call without a session was given the session's pod")
	}
	w.settle(s)
	w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	if !metav1.IsControlledBy(w.jobNamed(r.config.Hello.Job), s) {
		t.Error("the Job isn't the session's own")
	}
}

func TestBeginIsSentAgainToARunnerThatDidNotHearIt(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, r := w.readySession("s")
	r.begun = nil
	r.reconnect(w)
	w.keep(s)
	r.hearBegin()
	// One that heard it isn't told again.
	r.reconnect(w)
	w.settle(s)
	if now := w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady); now.Status.Incarnation != 1 {
		t.Errorf("incarnation %d", now.Status.Incarnation)
	}
	r.expectQuiet(w)
}

// A cache that is behind shows a process that was replaced since: it must not begin beside the one that is recorded now.
func TestAProcessThatWasReplacedDoesNotBegin(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, first := w.readySession("s", withWorkspace)
	old := w.getSession(s)
	w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
	w.settle(s)
	w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = false })
	w.makeReady(s)
	first.begun = nil
	first.reconnect(w)
	w.use = outdated{w.client, old}
	w.rebuild()
	w.keep(s)
	first.expectQuiet(w)
}

func TestAnIdleSessionEnds(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, _ := w.readySession("s", func(s *v1alpha1.ToolSession) { s.Spec.IdleTimeoutSeconds = seconds(600) })
	w.keepAfter(9*time.Minute, s)
	w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	call := w.callIn(s, "c")
	w.waits(call, s)
	w.keepAfter(9*time.Minute, s)
	w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	if again := w.keep(s).RequeueAfter; again > 10*time.Minute {
		t.Errorf("a session with a call is looked at in %s: that the call ends has nobody look at it", again)
	}
	w.finishCall(call)
	w.keepAfter(9*time.Minute, s)
	w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	w.keepAfter(2*time.Minute, s)
	w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonIdleTimeout)
}

// A file on its way keeps a session from being idle, and so does one that went since somebody last looked.
func TestASessionThatCarriesAFileIsNotIdle(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, r := w.readySession("s", func(s *v1alpha1.ToolSession) { s.Spec.IdleTimeoutSeconds = seconds(600) })
	runner := w.hub.SessionByKey(w.getSession(s).Status.Runner.KeyHash)
	over := make(chan error, 1)
	go func() {
		_, err := runner.Transfer(t.Context(), wire.Transfer{Kind: wire.TransferDelete, Path: "/f"})
		over <- err
	}()
	m := r.receive()
	if m.Transfer == nil {
		t.Fatalf("got %+v, want a transfer", m)
	}
	w.keepAfter(11*time.Minute, s)
	w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	if err := errors.Join(r.conn.Send(&wire.Message{State: &wire.TransferState{ID: m.Transfer.ID, Ended: true}}), <-over); err != nil {
		t.Fatal(err)
	}
	w.keepAfter(11*time.Minute, s)
	w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonIdleTimeout)
}

func TestBackgroundCallsDoNotKeepASessionFromBeingIdle(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, _ := w.readySession("s")
	w.callIn(s, "server", background)
	w.keepAfter(16*time.Minute, s)
	w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonIdleTimeout)
}

func TestASessionWithoutAnIdleTimeoutStays(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, _ := w.readySession("s", func(s *v1alpha1.ToolSession) { s.Spec.IdleTimeoutSeconds = seconds(0) })
	w.keepAfter(7*time.Hour, s)
	w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	w.keepAfter(time.Hour+time.Second, s)
	w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonMaxLifetime)
}

// Nobody knows when the last call was before this operator: idleness counts from when runners can reach it.
func TestIdlenessCountsAnewAfterARestart(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, r := w.readySession("s")
	w.elapse(time.Hour)
	w.restart()
	r.reconnect(w)
	w.settle(s)
	w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	w.keepAfter(16*time.Minute, s)
	w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonIdleTimeout)
}

func TestASessionEndsWhenItsRunnerHasTakenAllItsCalls(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, r := w.readySession("s", func(s *v1alpha1.ToolSession) { s.Spec.MaxCalls = seconds(3) })
	call := w.callIn(s, "c")
	r.taken = 3
	r.reconnect(w, running(call))
	w.settle(s)
	w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	w.finishCall(call)
	r.reconnect(w)
	w.settle(s)
	if now := w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonMaxCalls); now.Status.Calls.Ended != 3 {
		t.Errorf("calls: %+v", now.Status.Calls)
	}
}

// The name is free only when nothing of the session is left.
func TestADeletedSessionWaitsForItsCalls(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, r := w.readySession("s")
	call := w.callIn(s, "c")
	name := w.getSession(s).Status.Job
	w.deleteSession(s)
	w.settle(s)
	now := w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonEndRequested)
	r.hearEnd()
	if !isHeldByFinalizer(now) || !w.hasNamedJob(name) {
		t.Fatal("the session or its Job went before its call had ended")
	}
	if now.Status.Calls == nil || now.Status.Calls.Running+now.Status.Calls.Queued != 1 {
		t.Errorf("calls: %+v", now.Status.Calls)
	}
	w.finishCall(call)
	w.settle(s)
	if _, found := w.find(s); found || w.hasNamedJob(name) {
		t.Error("the session, or its Job, is still there")
	}
}

// The cache may be behind: a call that it doesn't show yet holds the name too.
func TestACallThatTheCacheLacksHoldsItsSession(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	s, _ := w.readySession("s")
	call := w.callIn(s, "c")
	w.use = withoutCalls{w.client}
	w.rebuild()
	w.deleteSession(s)
	for range 4 {
		w.keep(s)
	}
	w.getSession(s)
	w.finishCall(call)
	w.settle(s)
	if _, found := w.find(s); found {
		t.Error("the session is still there")
	}
}

func TestASessionThatCannotStartSaysWhy(t *testing.T) {
	refused := func(reason string) func(*corev1.PodStatus) { return waitingFor(reason) }
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ToolSession)
		then   func(*world, *v1alpha1.ToolSession)
		want   string
	}{
		"an environment that doesn't exist": {
			change: func(s *v1alpha1.ToolSession) { s.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "none"} },
			want:   v1alpha1.ReasonEnvironmentNotFound,
		},
		"a skill that doesn't exist": {
			change: func(s *v1alpha1.ToolSession) { s.Spec.SkillRef = &v1alpha1.LocalReference{Name: "none"} },
			want:   v1alpha1.ReasonSkillNotFound,
		},
		"an image that can't be pulled": {
			then: func(w *world, s *v1alpha1.ToolSession) {
				job, _ := w.sessionJob(s)
				w.podStatus(w.pod(job), refused("ImagePullBackOff"))
			},
			want: v1alpha1.ReasonImagePullFailed,
		},
		"a pod that doesn't start": {
			then: func(w *world, _ *v1alpha1.ToolSession) { w.elapse(3 * time.Minute) },
			want: v1alpha1.ReasonStartTimeout,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.environment("env", asDefault)
			s := w.session("s")
			if tc.change != nil {
				s = w.session("s2", tc.change)
			}
			w.settle(s)
			if tc.then != nil {
				tc.then(w, s)
				w.settle(s)
			}
			now := w.expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonStartFailed)
			if !strings.HasPrefix(now.Status.Message, tc.want+": ") {
				t.Errorf("message: %s", now.Status.Message)
			}
			if _, found := w.sessionJob(s); found {
				t.Error("its Job is there")
			}
		})
	}
}
