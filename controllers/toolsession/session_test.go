package toolsession_test

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
	"toolcall.dev/operator/internal/testing/fixture"
)

func TestASessionGoesFromItsCreationToItsEnd(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s := w.Session("s")

	w.Settle(s)
	now := w.Expect(s, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
	job, found := w.SessionJob(s)
	if !found || now.Status.Job != job.Name || !metav1.IsControlledBy(job, now) || now.Status.Environment.Name != "env" {
		t.Fatalf("the session says %+v; its Job: %v", now.Status, found)
	}
	if !isHeldByFinalizer(now) {
		t.Error("nothing holds the session's name")
	}

	r := w.StartPod(s)
	w.Keep(s)
	now = w.Expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	r.HearBegin()
	b := now.Status.Runner
	if b == nil || b.PodUID != string(r.Pod.UID) || now.Status.Pod != r.Pod.Name || now.Status.Node != "node-1" || now.Status.Incarnation != 1 {
		t.Errorf("recorded: %+v", now.Status)
	}
	if r.Begun.Owner != (wire.Owner{Kind: wire.KindSession, UID: string(s.UID), Name: "s", Incarnation: 1}) || r.Begun.MaxCalls != 10000 || r.Begun.MaxConcurrentCalls != 1 {
		t.Errorf("begun: %+v", r.Begun)
	}
	if timings := now.Status.Timings; timings.Path != v1alpha1.PathCold || timings.ReadyMilliseconds == nil {
		t.Errorf("timings: %+v", timings)
	}
	w.Settle(s)

	w.EditSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
	w.Settle(s)
	now = w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonEndRequested)
	r.HearEnd()
	if now.Status.Runner.Decision != "" || now.Status.Runner.KeyHash == "" {
		t.Errorf("the ended session keeps %+v", now.Status.Runner)
	}
	if w.HasNamedJob(job.Name) || isHeldByFinalizer(now) {
		t.Error("the Job of the ended session is there, or its name is held")
	}
	w.KeepAfter(59*time.Minute, s)
	w.GetSession(s)
	w.KeepAfter(2*time.Minute, s)
	w.Keep(s)
	if _, found := w.Find(s); found {
		t.Error("the session stays for longer than ttlSecondsAfterEnded")
	}
}

// A runner hears of its session only when that records it: one that is recorded nowhere could be given calls twice.
func TestARunnerIsRecordedBeforeItBegins(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s := w.Session("s")
	w.Settle(s)
	r := w.StartPod(s)
	w.Use = &fixture.Flaky{Client: w.Client, Fail: func() fixture.Failure { return fixture.TimesOut }}
	w.Rebuild()
	if w.KeepError(s) == nil {
		t.Fatal("the write didn't fail")
	}
	w.Use = nil
	w.Rebuild()
	r.ExpectQuiet(w)
	if now := w.GetSession(s); now.Status.Runner != nil {
		t.Errorf("recorded: %+v", now.Status.Runner)
	}
}

func TestASessionTakesAWaitingPod(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	var r *fixture.SessionRunner
	for _, one := range w.WarmUp(env) {
		r = &fixture.SessionRunner{Runner: one}
	}
	s := w.Session("s")
	w.Keep(s)
	now := w.Expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	r.HearBegin()
	if now.Status.Timings.Path != v1alpha1.PathWarm || now.Status.Job != r.Config.Hello.Job {
		t.Errorf("the session runs in %s (%s)", now.Status.Job, now.Status.Timings.Path)
	}
	job := w.JobNamed(now.Status.Job)
	if !metav1.IsControlledBy(job, now) || job.Spec.ActiveDeadlineSeconds == nil || job.Labels[jobspec.LabelSession] != string(s.UID) {
		t.Error("the Job isn't the session's own")
	}
	if ttl := job.Spec.TTLSecondsAfterFinished; ttl != nil {
		t.Errorf("the Job, whose end is the proof that the session's process is gone, is deleted %d s after it", *ttl)
	}
	w.Fill(env)
	if w.Hosts.IsOffered(string(job.UID)) || !w.HasNamedJob(job.Name) || len(w.Waiting(env)) != 1 {
		t.Error("the pool has the session's pod, or isn't refilled")
	}
	r.ExpectQuiet(w)
}

// The pod is the session's by what its status says, also before the Job says so: for an operator that has just started too.
func TestThePoolLeavesAPodAloneThatASessionRecords(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	var r *fixture.SessionRunner
	for _, one := range w.WarmUp(env) {
		r = &fixture.SessionRunner{Runner: one}
	}
	s := w.Session("s")
	// The finalizer and the status are written, and then no more.
	left := 2
	w.Use = &fixture.Flaky{Client: w.Client, Fail: func() fixture.Failure {
		if left--; left >= 0 {
			return fixture.Succeeds
		}
		return fixture.TimesOut
	}}
	w.Rebuild()
	if w.KeepError(s) == nil {
		t.Fatal("the Job was taken over")
	}
	r.HearBegin()
	w.Use = nil
	w.Restart()
	// One that didn't hear Begin waits.
	begun := r.Begun
	r.Begun = nil
	r.Reconnect(w)
	w.Fill(env)
	if name := r.Config.Hello.Job; !w.HasNamedJob(name) || w.Hosts.IsOffered(string(w.JobNamed(name).UID)) {
		t.Fatal("the pool took the session's pod")
	}
	r.Begun = begun
	r.Reconnect(w)
	w.Fill(env)
	call := w.Call("c")
	w.Reconcile(call)
	if status := w.Get(call).Status; status.Job == r.Config.Hello.Job {
		t.Fatal("a call without a session was given the session's pod")
	}
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	if !metav1.IsControlledBy(w.JobNamed(r.Config.Hello.Job), s) {
		t.Error("the Job isn't the session's own")
	}
}

func TestBeginIsSentAgainToARunnerThatDidNotHearIt(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s")
	r.Begun = nil
	r.Reconnect(w)
	w.Keep(s)
	r.HearBegin()
	// One that heard it isn't told again.
	r.Reconnect(w)
	w.Settle(s)
	if now := w.Expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady); now.Status.Incarnation != 1 {
		t.Errorf("incarnation %d", now.Status.Incarnation)
	}
	r.ExpectQuiet(w)
}

// A cache that is behind shows a process that was replaced since: it must not begin beside the one that is recorded now.
func TestAProcessThatWasReplacedDoesNotBegin(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, first := w.ReadySession("s", fixture.WithWorkspace)
	old := w.GetSession(s)
	w.EditSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
	w.Settle(s)
	w.EditSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = false })
	w.MakeReady(s)
	first.Begun = nil
	first.Reconnect(w)
	w.Use = outdated{w.Client, old}
	w.Rebuild()
	w.Keep(s)
	first.ExpectQuiet(w)
}

func TestAnIdleSessionEnds(t *testing.T) {
	w := fixture.NewWorld(t)
	w.VouchForRequesters()
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s", func(s *v1alpha1.ToolSession) { s.Spec.IdleTimeoutSeconds = seconds(600) })
	w.KeepAfter(9*time.Minute, s)
	w.Expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	call := w.CallIn(s, "c")
	r.HandOver(w, call)
	w.KeepAfter(11*time.Minute, s)
	w.Expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	if again := w.Keep(s).RequeueAfter; again > 10*time.Minute {
		t.Errorf("a session with a call is looked at in %s: that the call ends has nobody look at it", again)
	}
	r.Report(w, call.UID, fixture.Completed)
	ended := w.Clock.Now()
	w.Reconcile(call)
	w.KeepAfter(9*time.Minute, s)
	w.Expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	w.KeepAfter(2*time.Minute, s)
	now := w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonIdleTimeout)
	if at := now.Status.LastCallTime; at == nil || at.Unix() != ended.Unix() {
		t.Errorf("its last call ended at %v, want %v", at, ended)
	}
}

// Of a session whose process is gone, the last call's end is known as long as the process was seen.
func TestTheEndOfTheLastCallOutlivesItsProcess(t *testing.T) {
	w := fixture.NewWorld(t)
	w.VouchForRequesters()
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s")
	call := w.CallIn(s, "c")
	r.HandOver(w, call)
	r.Report(w, call.UID, fixture.Completed)
	ended := w.Clock.Now()
	w.Reconcile(call)
	w.Elapse(time.Minute)
	r.Exit(w, corev1.PodSucceeded)
	w.KeepAfter(time.Minute, s)
	now := w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonPodLost)
	if at := now.Status.LastCallTime; at == nil || at.Unix() != ended.Unix() {
		t.Errorf("its last call ended at %v, want %v", at, ended)
	}
}

// A file on its way keeps a session from being idle, and so does one that went since somebody last looked.
func TestASessionThatCarriesAFileIsNotIdle(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s", func(s *v1alpha1.ToolSession) { s.Spec.IdleTimeoutSeconds = seconds(600) })
	runner := w.Hub.RunnerByKey(w.GetSession(s).Status.Runner.KeyHash)
	over := make(chan error, 1)
	go func() {
		_, err := runner.Transfer(t.Context(), wire.Transfer{Kind: wire.TransferDelete, Path: "/f"})
		over <- err
	}()
	m := r.Receive()
	if m.Transfer == nil {
		t.Fatalf("got %+v, want a transfer", m)
	}
	w.KeepAfter(11*time.Minute, s)
	w.Expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	if err := errors.Join(r.Conn.Send(&wire.Message{State: &wire.TransferState{ID: m.Transfer.ID, Ended: true}}), <-over); err != nil {
		t.Fatal(err)
	}
	w.KeepAfter(11*time.Minute, s)
	w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonIdleTimeout)
}

func TestBackgroundCallsDoNotKeepASessionFromBeingIdle(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, _ := w.ReadySession("s")
	w.CallIn(s, "server", fixture.Background)
	w.KeepAfter(16*time.Minute, s)
	w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonIdleTimeout)
}

func TestASessionWithoutAnIdleTimeoutStays(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, _ := w.ReadySession("s", func(s *v1alpha1.ToolSession) { s.Spec.IdleTimeoutSeconds = seconds(0) })
	w.KeepAfter(7*time.Hour, s)
	w.Expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	// The API server's clock may be ahead of the world's.
	w.KeepAfter(time.Hour+time.Minute, s)
	w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonMaxLifetime)
}

// Nobody knows when the last call was before this operator: idleness counts from when runners can reach it.
func TestIdlenessCountsAnewAfterARestart(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s")
	w.Elapse(time.Hour)
	w.Restart()
	r.Reconnect(w)
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	w.KeepAfter(16*time.Minute, s)
	w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonIdleTimeout)
}

func TestASessionEndsWhenItsRunnerHasTakenAllItsCalls(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s", func(s *v1alpha1.ToolSession) { s.Spec.MaxCalls = seconds(3) })
	call := w.CallIn(s, "c")
	r.Taken = 3
	r.Reconnect(w, running(call))
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	w.FinishCall(call)
	r.Reconnect(w)
	w.Settle(s)
	if now := w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonMaxCalls); now.Status.Calls.Ended != 3 {
		t.Errorf("calls: %+v", now.Status.Calls)
	}
}

// The name is free only when nothing of the session is left.
func TestADeletedSessionWaitsForItsCalls(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s")
	call := w.CallIn(s, "c")
	name := w.GetSession(s).Status.Job
	w.DeleteSession(s)
	w.Settle(s)
	now := w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonEndRequested)
	r.HearEnd()
	if !isHeldByFinalizer(now) || !w.HasNamedJob(name) {
		t.Fatal("the session or its Job went before its call had ended")
	}
	if now.Status.Calls == nil || now.Status.Calls.Running+now.Status.Calls.Queued != 1 {
		t.Errorf("calls: %+v", now.Status.Calls)
	}
	w.FinishCall(call)
	w.Settle(s)
	if _, found := w.Find(s); found || w.HasNamedJob(name) {
		t.Error("the session, or its Job, is still there")
	}
}

// The cache may be behind: a call that it doesn't show yet holds the name too.
func TestACallThatTheCacheLacksHoldsItsSession(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	s, _ := w.ReadySession("s")
	call := w.CallIn(s, "c")
	w.Use = withoutCalls{w.Client}
	w.Rebuild()
	w.DeleteSession(s)
	for range 4 {
		w.Keep(s)
	}
	w.GetSession(s)
	w.FinishCall(call)
	w.Settle(s)
	if _, found := w.Find(s); found {
		t.Error("the session is still there")
	}
}

func TestASessionThatCannotStartSaysWhy(t *testing.T) {
	refused := func(reason string) func(*corev1.PodStatus) { return waitingFor(reason) }
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ToolSession)
		then   func(*fixture.World, *v1alpha1.ToolSession)
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
			then: func(w *fixture.World, s *v1alpha1.ToolSession) {
				job, _ := w.SessionJob(s)
				w.PodStatus(w.Pod(job), refused("ErrImagePull"))
			},
			want: v1alpha1.ReasonImagePullFailed,
		},
		"a pod that doesn't start": {
			then: func(w *fixture.World, _ *v1alpha1.ToolSession) { w.Elapse(3 * time.Minute) },
			want: v1alpha1.ReasonStartTimeout,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			w.Environment("env", fixture.AsDefault)
			s := w.Session("s")
			if tc.change != nil {
				s = w.Session("s2", tc.change)
			}
			w.Settle(s)
			if tc.then != nil {
				tc.then(w, s)
				w.Settle(s)
			}
			now := w.Expect(s, v1alpha1.SessionEnded, v1alpha1.ReasonStartFailed)
			if !strings.HasPrefix(now.Status.Message, tc.want+": ") {
				t.Errorf("message: %s", now.Status.Message)
			}
			if _, found := w.SessionJob(s); found {
				t.Error("its Job is there")
			}
		})
	}
}
