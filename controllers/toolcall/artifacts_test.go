package toolcall

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/result"
)

func TestTheStatusSaysWhatWasCollected(t *testing.T) {
	t.Parallel()
	s := &v1alpha1.ToolCallStatus{}
	setArtifacts(s, nil)
	if diff := cmp.Diff(&v1alpha1.ToolCallStatus{}, s); diff != "" {
		t.Error(diff)
	}
	hash := strings.Repeat("a", 64)
	setArtifacts(s, &result.Artifacts{
		Kept:    result.ArtifactList{{Path: "out/a.png", Bytes: 3, SHA256: hash, MediaType: "image/png"}, {Path: "b", SHA256: hash, MediaType: "text/plain"}},
		Omitted: 4, Message: "4 larger than 5 bytes.",
	})
	want := &v1alpha1.ToolCallStatus{
		Artifacts: []v1alpha1.Artifact{
			{Path: "out/a.png", Bytes: 3, SHA256: hash, MediaType: "image/png"}, {Path: "b", SHA256: hash, MediaType: "text/plain"},
		},
		OmittedArtifacts: 4, ArtifactsMessage: "4 larger than 5 bytes.",
	}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
}

// What a runner may report is what a status may have.
func TestTheBoundsOfArtifactsAreThoseOfTheAPI(t *testing.T) {
	t.Parallel()
	reported := []int{result.MaxArtifacts, result.MaxArtifactPath, result.MaxArtifactPaths, result.MaxArtifactsMessage}
	api := []int{v1alpha1.MaxArtifacts, v1alpha1.MaxArtifactPathBytes, v1alpha1.MaxArtifactPathsBytes, v1alpha1.MaxArtifactsMessageBytes}
	if diff := cmp.Diff(api, reported); diff != "" {
		t.Error(diff)
	}
}
