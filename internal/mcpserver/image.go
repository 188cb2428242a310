package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
	outputclient "toolcall.dev/operator/internal/output/client"
)

// maxImage bounds an image that a model is shown, in bytes: models take at most 5 MB of base64.
const maxImage = 3 << 20

// imageTypes are the types of images that models are shown, imageNames how the names of such files end.
var (
	imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}
	imageNames = []string{".png", ".jpg", ".jpeg", ".gif", ".webp"}
)

// addImage shows an image that read_file was asked for. Its bytes aren't in the call, but the session has the file. An image that
// is too large, or can't be read, is described as other binary files are.
func addImage(ctx context.Context, who *identity.Requester, call *v1alpha1.ToolCall, r *reply.Result) {
	asked, read := call.Spec.File, call.Status.File
	if asked == nil || read == nil || !read.Binary || asked.Offset != nil || asked.Limit != nil || call.Spec.SessionRef == nil || who.Output == nil ||
		!slices.Contains(imageNames, strings.ToLower(path.Ext(read.Path))) {
		return
	}
	file := outputclient.File{Namespace: call.Namespace, Session: call.Spec.SessionRef.Name, Path: read.Path}
	showImage(r, read.Path, func(to io.Writer) error { return who.Output.Download(ctx, file, to, nil) })
}

// imageOf shows a whole artifact that is an image; nil for everything else, which is read as text.
func (s *Server) imageOf(ctx context.Context, who *identity.Requester, call *v1alpha1.ToolCall, query *outputclient.Query) *reply.Result {
	at := slices.IndexFunc(call.Status.Artifacts, func(a v1alpha1.Artifact) bool { return a.Path == query.Artifact })
	if query.Artifact == "" || query.Offset != 0 || at < 0 || !slices.Contains(imageTypes, call.Status.Artifacts[at].MediaType) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	whole := *query
	whole.Limit = 0
	r := &reply.Result{Reason: v1alpha1.ReasonCompleted, Call: call.Name, Phase: string(call.Status.Phase), Succeeded: true}
	showImage(r, query.Artifact, func(to io.Writer) error {
		_, err := who.Output.Copy(ctx, whole, outputclient.Sink{Write: func(p []byte) error { _, err := to.Write(p); return err }})
		return err
	})
	if r.Image == nil {
		r.Output = fmt.Sprintf("%s is a file of %d bytes that can't be shown as an image.", query.Artifact, call.Status.Artifacts[at].Bytes)
	}
	return r
}

// showImage has a result show an image, if what is read is one, and not too large.
func showImage(r *reply.Result, name string, read func(to io.Writer) error) {
	var data bytes.Buffer
	if read(&limitedWriter{to: &data, left: maxImage}) != nil {
		return
	}
	kind := http.DetectContentType(data.Bytes())
	if !slices.Contains(imageTypes, kind) {
		return
	}
	r.Image = &mcp.ImageContent{Data: data.Bytes(), MIMEType: kind}
	r.Output = fmt.Sprintf("%s is an image (%s) of %d bytes.", name, kind, data.Len())
}

// limitedWriter takes only so many bytes.
type limitedWriter struct {
	to   *bytes.Buffer
	left int
}

var errImageTooLarge = errors.New("the image is too large")

func (w *limitedWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errImageTooLarge
	}
	return w.to.Write(p)
}
