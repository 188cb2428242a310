package subresources

import (
	"fmt"
	"mime"
	"net/http"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
)

// shownTypes are the media types that a client may show as they are: none of them can have a script. All else is bytes.
var shownTypes = map[string]string{
	"image/png": "image/png", "image/jpeg": "image/jpeg", "image/gif": "image/gif", "image/webp": "image/webp",
	"text/plain": "text/plain; charset=utf-8",
}

// findArtifact returns the artifact of a call that is asked for; nil when a stream is.
func findArtifact(call *v1alpha1.ToolCall, query *logRequest) (*v1alpha1.Artifact, error) {
	if query.artifact == "" {
		return nil, nil
	}
	status := &call.Status
	for i := range status.Artifacts {
		if status.Artifacts[i].Path == query.artifact {
			return &status.Artifacts[i], nil
		}
	}
	return nil, statusError(http.StatusNotFound, metav1.StatusReasonNotFound, nil, "the call has no artifact %.300q: %s", query.artifact, artifactsOf(status))
}

// maxListed bounds the paths in a message.
const maxListed = 20

// artifactsOf says which artifacts a call has.
func artifactsOf(status *v1alpha1.ToolCallStatus) string {
	switch {
	case !status.Phase.Terminal():
		return "it has not ended, and what it collects is kept at its end"
	case len(status.Artifacts) == 0 && status.ArtifactsMessage != "":
		return "it has none. " + status.ArtifactsMessage
	case len(status.Artifacts) == 0:
		return "it has none, because none of its spec.collect was kept"
	}
	var listed []string
	for i := range status.Artifacts[:min(maxListed, len(status.Artifacts))] {
		listed = append(listed, fmt.Sprintf("%q", status.Artifacts[i].Path))
	}
	text := "it has " + strings.Join(listed, ", ")
	if more := len(status.Artifacts) - len(listed); more > 0 {
		text += fmt.Sprintf(" and %d more, see status.artifacts", more)
	}
	return text
}

// describeArtifact has a client save a file, or show it if it can do no harm.
func describeArtifact(h http.Header, a *v1alpha1.Artifact) {
	if shown, ok := shownTypes[a.MediaType]; ok {
		h.Set("Content-Type", shown)
	}
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(a.Path)})
	if disposition == "" {
		disposition = "attachment"
	}
	h.Set("Content-Disposition", disposition)
}

// isSame says whether what a source has is what the call's status says.
func isSame(info output.Info, a *v1alpha1.Artifact) bool {
	return info == output.Info{Bytes: a.Bytes, Complete: true, SHA256: a.SHA256}
}
