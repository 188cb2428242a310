package toolcall_test

import (
	"fmt"
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/testing/fixture"
)

// The most that a runner may report, in the characters that take most bytes, is what the API server takes.
func TestTheArtifactsOfACallAreInItsStatus(t *testing.T) {
	w := fixture.NewWorld(t)
	w.ListedPrograms()
	w.Environment("env", fixture.AsDefault)
	for name, path := range map[string]func(i int) string{
		"plain": func(i int) string { return fmt.Sprintf("%0*d", result.MaxArtifactPaths/result.MaxArtifacts, i) },
		"odd":   func(i int) string { return fmt.Sprintf("%s%02d", strings.Repeat("<", 19), i) },
		"wide":  func(i int) string { return fmt.Sprintf("%s%02d", strings.Repeat("é", 60), i) },
	} {
		outcome := fixture.Completed
		outcome.Artifacts = &result.Artifacts{Omitted: 1<<63 - 1, Message: strings.Repeat("x", result.MaxArtifactsMessage)}
		for i := range result.MaxArtifacts {
			outcome.Artifacts.Kept = append(outcome.Artifacts.Kept, result.Artifact{
				Path: path(i), Bytes: result.MaxArtifactBytes, SHA256: strings.Repeat("f", 64), MediaType: strings.Repeat("a", 31) + "/" + strings.Repeat("b", 32),
			})
		}
		if err := outcome.Validate(); err != nil {
			t.Fatal(name, err)
		}
		call, _ := w.EndWith(outcome)
		s := &call.Status
		if s.Reason != v1alpha1.ReasonCompleted || len(s.Artifacts) != result.MaxArtifacts || s.OmittedArtifacts != 1<<63-1 || len(s.ArtifactsMessage) != result.MaxArtifactsMessage {
			t.Fatalf("%s: it ended %s with %d artifacts, %d omitted", name, s.Reason, len(s.Artifacts), s.OmittedArtifacts)
		}
		for i, a := range s.Artifacts {
			want := outcome.Artifacts.Kept[i]
			if a != (v1alpha1.Artifact{Path: want.Path, Bytes: want.Bytes, SHA256: want.SHA256, MediaType: want.MediaType}) {
				t.Errorf("%s: got %+v", name, a)
			}
		}
	}
	if call, _ := w.EndWith(fixture.Completed); call.Status.Artifacts != nil || call.Status.OmittedArtifacts != 0 {
		t.Errorf("a call that collects nothing has %+v", call.Status.Artifacts)
	}
}
