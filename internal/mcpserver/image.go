package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	var data bytes.Buffer
	file := outputclient.File{Namespace: call.Namespace, Session: call.Spec.SessionRef.Name, Path: read.Path}
	if err := who.Output.Download(ctx, file, &limitedWriter{to: &data, left: maxImage}, nil); err != nil {
		return
	}
	kind := http.DetectContentType(data.Bytes())
	if !slices.Contains(imageTypes, kind) {
		return
	}
	r.Image = &mcp.ImageContent{Data: data.Bytes(), MIMEType: kind}
	r.Output = fmt.Sprintf("%s is an image (%s) of %d bytes.", read.Path, kind, data.Len())
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
