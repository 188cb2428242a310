package toolcall

import (
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/result"
)

// setArtifacts writes what the call collected. Its runner's result was checked: it is within the bounds of the API.
func setArtifacts(s *v1alpha1.ToolCallStatus, collected *result.Artifacts) {
	if collected == nil {
		return
	}
	s.OmittedArtifacts, s.ArtifactsMessage = collected.Omitted, collected.Message
	for i := range collected.Kept {
		a := &collected.Kept[i]
		s.Artifacts = append(s.Artifacts, v1alpha1.Artifact{Path: a.Path, Bytes: a.Bytes, SHA256: a.SHA256, MediaType: a.MediaType})
	}
}
