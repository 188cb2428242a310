package plugintest

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// Session creates a session.
func (f *Fixture) Session(name string, change ...func(*v1alpha1.ToolSession)) *v1alpha1.ToolSession {
	f.T.Helper()
	s := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: name}}
	for _, c := range change {
		c(s)
	}
	f.Make(s)
	return s
}

// GetSession reads a session.
func (f *Fixture) GetSession(name string) *v1alpha1.ToolSession {
	f.T.Helper()
	s := &v1alpha1.ToolSession{}
	if err := f.Client.Get(f.T.Context(), client.ObjectKey{Namespace: f.Namespace, Name: name}, s); err != nil {
		f.T.Fatal(err)
	}
	return s
}

// SetSession writes a session's status, as the operator does.
func (f *Fixture) SetSession(name string, change func(*v1alpha1.ToolSession)) {
	f.T.Helper()
	s := f.GetSession(name)
	before := s.DeepCopy()
	change(s)
	s.Status.ObservedGeneration = s.Generation
	if err := f.Client.Status().Patch(f.T.Context(), s, client.MergeFrom(before)); err != nil {
		f.T.Fatal(err)
	}
}

// InPhase writes a phase.
func InPhase(phase v1alpha1.SessionPhase) func(*v1alpha1.ToolSession) {
	return func(s *v1alpha1.ToolSession) { s.Status.Phase = phase }
}

// ReadySession creates a session that is ready.
func (f *Fixture) ReadySession(name string, change ...func(*v1alpha1.ToolSession)) *v1alpha1.ToolSession {
	f.T.Helper()
	f.Session(name, change...)
	f.SetSession(name, InPhase(v1alpha1.SessionReady))
	return f.GetSession(name)
}

// OnVolume gives a session a workspace.
func OnVolume(s *v1alpha1.ToolSession) {
	s.Spec.Workspace = &v1alpha1.SessionWorkspace{Size: ResourceOf("1Gi")}
}

// OperateSessions takes the operator's place: it passes each new or changed session to decide, and writes its status if
// decide says so, as made from the spec that decide saw.
func (f *Fixture) OperateSessions(decide func(s *v1alpha1.ToolSession) bool) {
	f.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	watching, err := f.Client.Watch(ctx, &v1alpha1.ToolSessionList{}, client.InNamespace(f.Namespace))
	if err != nil {
		f.T.Fatal(err)
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
			if err := f.Client.Status().Patch(ctx, s, client.MergeFrom(before)); err != nil && ctx.Err() == nil {
				f.T.Errorf("write the status of %s: %v", s.Name, err)
			}
		}
	})
	f.T.Cleanup(func() { cancel(); watching.Stop(); done.Wait() })
}

// ObeySessions does at once what each session's spec asks for.
func (f *Fixture) ObeySessions() {
	f.OperateSessions(func(s *v1alpha1.ToolSession) bool {
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
