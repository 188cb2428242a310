package controllers_test

import (
	"fmt"
	"sync"
	"testing"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

func limited(most, each *int32) func(*v1alpha1.ExecutionEnvironment) {
	return func(e *v1alpha1.ExecutionEnvironment) {
		asDefault(e)
		e.Spec.Sessions = &v1alpha1.SessionLimits{Max: most, MaxPerCaller: each}
	}
}

func TestSessionsOverTheLimitWaitInTheirOrder(t *testing.T) {
	w := newWorld(t)
	w.environment("env", limited(ptr.To(int32(1)), nil))
	first, _ := w.readySession("first")
	second, third := w.session("second"), w.session("third")
	for _, s := range []*v1alpha1.ToolSession{second, third} {
		w.settle(s)
		w.expect(s, v1alpha1.SessionPending, v1alpha1.ReasonTooManySessions)
		if _, found := w.sessionJob(s); found {
			t.Errorf("session %s has a Job", s.Name)
		}
	}
	w.editSession(first, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
	w.settle(first)
	// Created in the same second they come in the order of their UIDs.
	if third.CreationTimestamp.Equal(&second.CreationTimestamp) && third.UID < second.UID {
		second, third = third, second
	}
	w.settle(third)
	w.expect(third, v1alpha1.SessionPending, v1alpha1.ReasonTooManySessions)
	w.settle(second)
	w.expect(second, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
}

func TestARequesterOverTheirLimitKeepsNobodyWaiting(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", limited(ptr.To(int32(2)), ptr.To(int32(1))))
	w.readySession("a1", askedBy("alice"))
	again := w.session("a2", askedBy("alice"))
	w.settle(again)
	w.expect(again, v1alpha1.SessionPending, v1alpha1.ReasonTooManySessions)
	other := w.session("b1", askedBy("bob"))
	w.settle(other)
	w.expect(other, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
	w.edit(env, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Sessions = nil })
	w.settle(again)
	w.expect(again, v1alpha1.SessionPending, v1alpha1.ReasonSessionStarting)
}

// A suspended session has no pod, and takes no place.
func TestASuspendedSessionGivesItsPlaceAndWaitsForAnother(t *testing.T) {
	w := newWorld(t)
	w.environment("env", limited(ptr.To(int32(1)), nil))
	s, _ := w.readySession("s", withWorkspace)
	w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
	w.settle(s)
	w.expect(s, v1alpha1.SessionSuspended, v1alpha1.ReasonSessionSuspended)
	next, _ := w.readySession("next")
	w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = false })
	w.settle(s)
	w.expect(s, v1alpha1.SessionPending, v1alpha1.ReasonTooManySessions)
	w.deleteSession(next)
	w.settle(next)
	w.makeReady(s)
}

// Passes at the same time see the same places.
func TestTheLastPlaceIsTakenOnce(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", limited(ptr.To(int32(3)), nil))
	var sessions []*v1alpha1.ToolSession
	for i := range 12 {
		sessions = append(sessions, w.session(fmt.Sprint("s-", i)))
	}
	var passes sync.WaitGroup
	for _, s := range sessions {
		passes.Go(func() { w.keep(s) })
	}
	passes.Wait()
	if n := w.jobCount(); n > 3 {
		t.Fatalf("%d sessions have Jobs", n)
	}
	for _, s := range sessions {
		w.settle(s)
	}
	if n := w.jobCount(); n != 3 {
		t.Errorf("%d sessions have Jobs", n)
	}
	w.edit(env, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Sessions.Max = ptr.To(int32(4)) })
	for _, s := range sessions {
		w.settle(s)
	}
	if n := w.jobCount(); n != 4 {
		t.Errorf("%d sessions have Jobs", n)
	}
}

func TestASessionWaitsForItsSuspendedEnvironment(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", asDefault, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Suspend = true })
	s := w.session("s")
	w.settle(s)
	w.expect(s, v1alpha1.SessionPending, v1alpha1.ReasonEnvironmentSuspended)
	w.suspend(env, false)
	w.makeReady(s)
}

// A session keeps what it began with: its environment may change, or go.
func TestASessionOutlivesItsEnvironment(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", asDefault)
	s, r := w.readySession("s", withWorkspace)
	if err := w.client.Delete(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	w.settle(s)
	w.expect(s, v1alpha1.SessionReady, v1alpha1.ReasonReady)
	w.disconnect(r.runner)
	w.podStatus(r.pod, terminated("Error", ""))
	w.settle(s)
	w.makeReady(s)
	job, _ := w.sessionJob(s)
	if image := job.Spec.Template.Spec.Containers[0].Image; image != env.Spec.Image {
		t.Errorf("the session's second pod has image %s", image)
	}
	if key := client.ObjectKeyFromObject(job); key.Name == "" {
		t.Error("no Job")
	}
}
