package reply

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"toolcall.dev/operator/api/v1alpha1"
)

// scheme is that of the URIs of artifacts: toolcall://NAMESPACE/CALL/PATH. The tool read_output reads them.
const scheme = "toolcall"

// maxLinks bounds the artifacts that an answer has links to.
const maxLinks = 20

// Artifact is a file that a call kept.
type Artifact struct {
	Path      string `json:"path"`
	URI       string `json:"uri"`
	Bytes     int64  `json:"bytes"`
	MediaType string `json:"media_type,omitempty"`
}

// artifactsOf are the files that a call kept.
func artifactsOf(call *v1alpha1.ToolCall) []Artifact {
	var all []Artifact
	for _, a := range call.Status.Artifacts {
		uri := url.URL{Scheme: scheme, Host: call.Namespace, Path: "/" + call.Name + "/" + a.Path}
		all = append(all, Artifact{Path: a.Path, URI: uri.String(), Bytes: a.Bytes, MediaType: a.MediaType})
	}
	return all
}

// addArtifacts has the output say which files were kept, and which weren't.
func (r *Result) addArtifacts(call *v1alpha1.ToolCall) {
	r.Artifacts = artifactsOf(call)
	lines := firstTexts(r.Artifacts, maxLinks, func(a Artifact) string {
		return fmt.Sprintf("%s %d %s", Plain(a.Path), a.Bytes, Plain(cmp.Or(a.MediaType, "unknown")))
	})
	if len(lines) > 0 {
		lines = append([]string{"Kept files, for read_output with artifact:"}, lines...)
	}
	if message := call.Status.ArtifactsMessage; message != "" {
		lines = append(lines, "Not kept: "+strings.Join(strings.Fields(message), " "))
	}
	if len(lines) > 0 {
		r.Output = strings.TrimRight(r.Output, "\n") + "\n\n" + strings.Join(lines, "\n")
	}
}

// links are the links to the first artifacts that take at most limit characters.
func (r *Result) links(limit int) []*mcp.ResourceLink {
	var all []*mcp.ResourceLink
	for _, a := range r.Artifacts[:min(len(r.Artifacts), maxLinks)] {
		link := &mcp.ResourceLink{URI: a.URI, Name: a.Path, MIMEType: a.MediaType, Size: new(a.Bytes)}
		if limit -= lengthOf([]*mcp.ResourceLink{link}); limit < 0 {
			return all
		}
		all = append(all, link)
	}
	return all
}

// lengthOf is how many characters links take.
func lengthOf(links []*mcp.ResourceLink) (total int) {
	for _, link := range links {
		total += length(link.URI) + length(link.Name) + length(link.MIMEType)
	}
	return total
}

// ArtifactReference is an artifact as a model names it.
type ArtifactReference struct{ Namespace, Call, Path string }

// ParseURI reads the URI of an artifact. isURI is false for what isn't one, but a path.
func ParseURI(text string) (ref ArtifactReference, isURI bool, err error) {
	if !strings.HasPrefix(text, scheme+"://") {
		return ref, false, nil
	}
	parsed, err := url.Parse(text)
	if err != nil {
		return ref, true, fmt.Errorf("is not a URI of an artifact: copy it from the result of the call")
	}
	call, path, _ := strings.Cut(strings.TrimPrefix(parsed.Path, "/"), "/")
	if parsed.Host == "" || call == "" || path == "" {
		return ref, true, fmt.Errorf("is not a URI of an artifact, such as %s://NAMESPACE/CALL/PATH: copy it from the result of the call", scheme)
	}
	return ArtifactReference{parsed.Host, call, path}, true, nil
}
