package plugin

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// session creates a session.
func (f *fixture) session(name string, change ...func(*v1alpha1.ToolSession)) *v1alpha1.ToolSession {
	f.t.Helper()
	s := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}}
	for _, c := range change {
		c(s)
	}
	f.make(s)
	return s
}

// getSession reads a session.
func (f *fixture) getSession(name string) *v1alpha1.ToolSession {
	f.t.Helper()
	s := &v1alpha1.ToolSession{}
	if err := f.client.Get(f.t.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, s); err != nil {
		f.t.Fatal(err)
	}
	return s
}

// setSession writes a session's status, as the operator does.
func (f *fixture) setSession(name string, change func(*v1alpha1.ToolSession)) {
	f.t.Helper()
	s := f.getSession(name)
	before := s.DeepCopy()
	change(s)
	s.Status.ObservedGeneration = s.Generation
	if err := f.client.Status().Patch(f.t.Context(), s, client.MergeFrom(before)); err != nil {
		f.t.Fatal(err)
	}
}

// inPhase writes a phase.
func inPhase(phase v1alpha1.SessionPhase) func(*v1alpha1.ToolSession) {
	return func(s *v1alpha1.ToolSession) { s.Status.Phase = phase }
}

// readySession creates a session that is ready.
func (f *fixture) readySession(name string, change ...func(*v1alpha1.ToolSession)) *v1alpha1.ToolSession {
	f.t.Helper()
	f.session(name, change...)
	f.setSession(name, inPhase(v1alpha1.SessionReady))
	return f.getSession(name)
}

// onVolume gives a session a workspace.
func onVolume(s *v1alpha1.ToolSession) {
	s.Spec.Workspace = &v1alpha1.SessionWorkspace{Size: resourceOf("1Gi")}
}

// operateSessions takes the operator's place: it passes each new or changed session to decide, and writes its status if
// decide says so, as made from the spec that decide saw.
func (f *fixture) operateSessions(decide func(s *v1alpha1.ToolSession) bool) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	watching, err := f.client.Watch(ctx, &v1alpha1.ToolSessionList{}, client.InNamespace(f.namespace))
	if err != nil {
		f.t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for event := range watching.ResultChan() {
			s, ok := event.Object.(*v1alpha1.ToolSession)
			if !ok || event.Type == watch.Deleted {
				continue
			}
			before := s.DeepCopy()
			if !decide(s) {
				continue
			}
			s.Status.ObservedGeneration = s.Generation
			if err := f.client.Status().Patch(ctx, s, client.MergeFrom(before)); err != nil && ctx.Err() == nil {
				f.t.Errorf("write the status of %s: %v", s.Name, err)
			}
		}
	})
	f.t.Cleanup(func() { cancel(); watching.Stop(); done.Wait() })
}

// obeySessions does at once what each session's spec asks for.
func (f *fixture) obeySessions() {
	f.operateSessions(func(s *v1alpha1.ToolSession) bool {
		phase := v1alpha1.SessionReady
		switch {
		case s.Spec.End:
			phase = v1alpha1.SessionEnded
			s.Status.Reason = v1alpha1.ReasonEndRequested
		case s.Spec.Suspend:
			phase = v1alpha1.SessionSuspended
		}
		if s.Status.Phase == phase && s.Status.ObservedGeneration == s.Generation || s.Status.Phase == v1alpha1.SessionEnded {
			return false
		}
		s.Status.Phase = phase
		return true
	})
}
