package toolsession_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

func limited(most, each *int32) func(*v1alpha1.ExecutionEnvironment) {
	return func(e *v1alpha1.ExecutionEnvironment) {
		fixture.AsDefault(e)
		e.Spec.Sessions = &v1alpha1.SessionLimits{Max: most, MaxPerCaller: each}
	}
}

func TestSessionsOverTheLimitWaitInTheirOrder(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", limited(ptr.To(int32(1)), nil))
	first, _ := w.ReadySession("first")
	second, third := w.Session("second"), w.Session("third")
	for _, s := range []*v1alpha1.ToolSession{second, third} {
		w.Settle(s)
		w.Expect(s, v1alpha1.SessionPending, v1alpha1.ReasonTooManySessions)
		if _, found := w.SessionJob(s); found {
			t.Errorf("session %s has a Job", s.Name)
		}
	}
	w.EditSession(first, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
	w.Settle(first)
	// Created in the same second they come in the order of their UIDs.
	if third.CreationTimestamp.Equal(&second.CreationTimestamp) && third.UID < second.UID {
		second, third = third, second
	}
	w.Settle(third)
	w.Expect(third, v1alpha1.SessionPending, v1alpha1.ReasonTooManySessions)
	w.Settle(second)
	w.Expect(second, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
}

func TestARequesterOverTheirLimitKeepsNobodyWaiting(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", limited(ptr.To(int32(2)), ptr.To(int32(1))))
	w.ReadySession("a1", askedBy("alice"))
	again := w.Session("a2", askedBy("alice"))
	w.Settle(again)
	w.Expect(again, v1alpha1.SessionPending, v1alpha1.ReasonTooManySessions)
	other := w.Session("b1", askedBy("bob"))
	w.Settle(other)
	w.Expect(other, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
	w.Edit(env, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Sessions = nil })
	w.Settle(again)
	w.Expect(again, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
}

// A suspended session has no pod, and takes no place.
func TestASuspendedSessionGivesItsPlaceAndWaitsForAnother(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", limited(ptr.To(int32(1)), nil))
	s, _ := w.ReadySession("s", fixture.WithWorkspace)
	w.EditSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonSessionSuspended)
	next, _ := w.ReadySession("next")
	w.EditSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = false })
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionPending, v1alpha1.ReasonTooManySessions)
	w.DeleteSession(next)
	w.Settle(next)
	w.MakeReady(s)
}

// Passes at the same time see the same places.
func TestTheLastPlaceIsTakenOnce(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", limited(ptr.To(int32(3)), nil))
	var sessions []*v1alpha1.ToolSession
	for i := range 12 {
		sessions = append(sessions, w.Session(fmt.Sprint("s-", i)))
	}
	var passes sync.WaitGroup
	for _, s := range sessions {
		passes.Go(func() { w.Keep(s) })
	}
	passes.Wait()
	if n := w.JobCount(); n > 3 {
		t.Fatalf("%d sessions have Jobs", n)
	}
	for _, s := range sessions {
		w.Settle(s)
	}
	if n := w.JobCount(); n != 3 {
		t.Errorf("%d sessions have Jobs", n)
	}
	w.Edit(env, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Sessions.Max = ptr.To(int32(4)) })
	for _, s := range sessions {
		w.Settle(s)
	}
	if n := w.JobCount(); n != 4 {
		t.Errorf("%d sessions have Jobs", n)
	}
}

// A pass that comes while another one writes its place neither gets the same place nor waits: the write may meet a slow webhook.
func TestAPassDoesNotWaitForAnotherThatTakesAPlace(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", limited(ptr.To(int32(1)), nil))
	b := &between{Client: w.Client}
	w.Use = b
	w.Rebuild()
	first, second := w.Session("first"), w.Session("second")
	b.do = func() error {
		if again := w.Keep(second).RequeueAfter; again <= 0 {
			t.Error("nothing has the second session looked at again")
		}
		if w.GetSession(second).Status.Job != "" {
			t.Error("the second session has a place, too")
		}
		return nil
	}
	w.Keep(first)
	for _, s := range []*v1alpha1.ToolSession{first, second} {
		w.Settle(s)
	}
	w.Expect(first, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
	w.Expect(second, v1alpha1.SessionPending, v1alpha1.ReasonTooManySessions)
}

// A session that was let in counts, also where nothing more was done for it.
func TestASessionThatWasLetInCountsBeforeItHasAJob(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", limited(ptr.To(int32(1)), nil))
	first, second := w.Session("first"), w.Session("second")
	w.Keep(first)
	if _, found := w.SessionJob(first); found || w.GetSession(first).Status.Job == "" {
		t.Fatal("the place isn't written before the Job is made")
	}
	w.Restart()
	w.Settle(second)
	w.Expect(second, v1alpha1.SessionPending, v1alpha1.ReasonTooManySessions)
	w.MakeReady(first)
}

func TestASessionWaitsForItsSuspendedEnvironment(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.AsDefault, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Suspend = true })
	s := w.Session("s")
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionPending, v1alpha1.ReasonEnvironmentSuspended)
	w.Suspend(env, false)
	w.MakeReady(s)
}

// Nothing tells a session that the default is another environment now: it looks again by itself.
func TestASessionThatWaitsFollowsTheDefaultEnvironment(t *testing.T) {
	suspended := func(e *v1alpha1.ExecutionEnvironment) { fixture.AsDefault(e); e.Spec.Suspend = true }
	for reason, tc := range map[string]struct {
		change func(*v1alpha1.ExecutionEnvironment)
		most   time.Duration
	}{
		v1alpha1.ReasonEnvironmentSuspended: {suspended, 10 * time.Second},
		v1alpha1.ReasonTooManySessions:      {limited(ptr.To(int32(0)), nil), 10 * time.Minute},
	} {
		t.Run(reason, func(t *testing.T) {
			w := fixture.NewWorld(t)
			before := w.Environment("before", tc.change)
			next := w.Environment("next")
			s, named := w.Session("s"), w.Session("named", func(s *v1alpha1.ToolSession) {
				s.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: before.Name}
			})
			for _, waits := range []*v1alpha1.ToolSession{s, named} {
				w.Settle(waits)
				w.Expect(waits, v1alpha1.SessionPending, reason)
			}
			if again := w.Keep(s).RequeueAfter; again <= 0 || again > tc.most {
				t.Errorf("it is looked at again after %s", again)
			}
			if again := w.Keep(named).RequeueAfter; again > 0 && again <= tc.most {
				t.Errorf("one that names its environment is looked at again after %s", again)
			}
			w.Edit(before, func(e *v1alpha1.ExecutionEnvironment) { delete(e.Annotations, v1alpha1.AnnotationDefaultEnvironment) })
			w.Edit(next, func(e *v1alpha1.ExecutionEnvironment) {
				e.Annotations = map[string]string{v1alpha1.AnnotationDefaultEnvironment: "true"}
			})
			w.MakeReady(s)
		})
	}
}

// A session keeps what it began with: its environment may change, or go.
func TestASessionOutlivesItsEnvironment(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.AsDefault)
	s, r := w.ReadySession("s", fixture.WithWorkspace)
	if err := w.Client.Delete(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	w.Settle(s)
	w.Expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	w.Disconnect(r.Runner)
	w.PodStatus(r.Pod, fixture.Terminated("Error", ""))
	w.Settle(s)
	w.MakeReady(s)
	job, _ := w.SessionJob(s)
	if image := job.Spec.Template.Spec.Containers[0].Image; image != env.Spec.Image {
		t.Errorf("the session's second pod has image %s", image)
	}
	if key := client.ObjectKeyFromObject(job); key.Name == "" {
		t.Error("no Job")
	}
}
