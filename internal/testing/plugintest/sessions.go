package plugintest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	return read(f, name, &v1alpha1.ToolSession{})
}

// SetSession writes a session's status, as the operator does.
func (f *Fixture) SetSession(name string, change func(*v1alpha1.ToolSession)) {
	f.T.Helper()
	setStatus(f, name, &v1alpha1.ToolSession{}, func(s *v1alpha1.ToolSession) {
		change(s)
		s.Status.ObservedGeneration = s.Generation
	})
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
	follow(f, &v1alpha1.ToolSessionList{}, func(s *v1alpha1.ToolSession) bool {
		isChanged := decide(s)
		s.Status.ObservedGeneration = s.Generation
		return isChanged
	})
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
