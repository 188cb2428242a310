package output_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

// collects is a call whose result has come, and that collected a picture and an empty file.
func (s *storing) collects(name string, picture []byte) (*v1alpha1.ToolCall, *keptPod) {
	s.T.Helper()
	call, p := s.runs(name, []byte("drawn\n"), nil)
	p.streams["out/plot.png"], p.streams["empty"] = picture, nil
	p.serve()
	p.Report(s.World, call.UID, p.outcome())
	return call, p
}

// expectArtifacts compares what a status says of the files.
func (s *storing) expectArtifacts(call *v1alpha1.ToolCall, output v1alpha1.OutputState, each v1alpha1.OutputState, reason string) {
	s.T.Helper()
	status := s.Get(call).Status
	if status.Phase != v1alpha1.PhaseSucceeded || status.OutputState != output || len(status.Artifacts) != 2 {
		s.T.Fatalf("the call is %s, its output %q: %+v", status.Phase, status.OutputState, status.Artifacts)
	}
	for _, a := range status.Artifacts {
		if a.State != each {
			s.T.Errorf("%s is %q, want %q", a.Path, a.State, each)
		}
	}
	if status.Streams.Stdout.State != "" {
		s.T.Errorf("stdout, which fits, is %q", status.Streams.Stdout.State)
	}
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionOutputStored)
	if reason == "" && c != nil || reason != "" && (c == nil || c.Reason != reason) {
		s.T.Errorf("the condition is %+v, want %q", c, reason)
	}
}

// hasArtifacts says that the store has the files, exactly.
func (s *storing) hasArtifacts(call *v1alpha1.ToolCall, picture []byte) bool {
	s.T.Helper()
	plot, empty := s.key(call, ""), s.key(call, "")
	plot.Artifact, empty.Artifact = "out/plot.png", "empty"
	return s.has(plot, picture) && s.has(empty, nil)
}

func TestWhatACallCollectsIsStoredBeforeItsRunnerGoes(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	picture := noise(8, 3<<20+5)
	call, p := s.collects("c", picture)
	for s.Get(call).Status.Phase != v1alpha1.PhaseSucceeded {
		if p.isAcked() {
			t.Fatal("the runner may go, and nothing is written")
		}
		s.reconcile(call)
	}
	s.expectArtifacts(call, v1alpha1.OutputComplete, v1alpha1.OutputComplete, "")
	p.expectAck()
	if !s.hasArtifacts(call, picture) {
		t.Error("the store has something else")
	}
}

func TestWhatACallCollectsIsStoredByTheNextOperator(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	picture := noise(9, 1<<20)
	back := s.away()
	call, p := s.collects("c", picture)
	s.reconcile(call)
	s.Clock.Set(s.Clock.Now().Add(2 * time.Second))
	s.reconcile(call)
	status := s.Get(call).Status
	s.expectArtifacts(call, v1alpha1.OutputStoring, v1alpha1.OutputStoring, meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionOutputStored).Reason)
	if s.reconcile(call); p.isAcked() {
		t.Fatal("the runner may go, and what it has isn't stored")
	}
	s.crash()
	back()
	p.comesBack(s, call)
	fixture.Eventually(t, func() bool {
		s.reconcile(call)
		return s.Get(call).Status.OutputState != v1alpha1.OutputStoring
	})
	s.expectArtifacts(call, v1alpha1.OutputComplete, v1alpha1.OutputComplete, v1alpha1.ReasonOutputKept)
	p.expectAck()
	if !s.hasArtifacts(call, picture) {
		t.Error("the store has something else")
	}
}

func TestWhatACallCollectedIsLostWithoutItsStore(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	defer s.away()()
	call, p := s.collects("c", noise(10, 1<<20))
	s.reconcile(call)
	s.Clock.Set(s.Clock.Now().Add(2 * time.Second))
	s.reconcile(call)
	s.Clock.Set(s.Clock.Now().Add(6 * time.Minute))
	fixture.Eventually(t, func() bool {
		s.reconcile(call)
		return s.Get(call).Status.OutputState != v1alpha1.OutputStoring
	})
	s.expectArtifacts(call, v1alpha1.OutputLost, v1alpha1.OutputLost, v1alpha1.ReasonOutputLost)
	p.expectAck()
}
