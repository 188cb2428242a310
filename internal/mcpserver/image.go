package mcpserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
	outputclient "toolcall.dev/operator/internal/output/client"
)

// maxImage bounds an image that a model is shown, in bytes: models take at most 5 MB of base64.
const maxImage = 3 << 20

// maxImageBytes and its parts bound the memory of the answers with images that clients haven't read yet. An image takes up imageCopies times
// its size there: its own bytes, base64, and JSON on its way.
const (
	imageCopies            = 10
	maxImageBytes          = 128 << 20
	maxImageBytesPerTenant = maxImageBytes / 2
	maxImageBytesPerUser   = maxImageBytes / 4
)

// imageTypes are the types of images that models are shown, imageNames how the names of such files end.
var (
	imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}
	imageNames = []string{".png", ".jpg", ".jpeg", ".gif", ".webp"}
)

// addImage shows an image that read_file was asked for. Its bytes aren't in the call, but the session has the file. An image that
// is too large, or can't be read, is described as other binary files are. So is a file that isn't known to be what the call read: one with
// another hash, or, later than at the end of the call, one without.
func (s *Server) addImage(ctx context.Context, extra *mcp.RequestExtra, who *identity.Requester, call *v1alpha1.ToolCall, r *reply.Result, later bool) {
	asked, read := call.Spec.File, call.Status.File
	if asked == nil || read == nil || !read.Binary || asked.Offset != nil || asked.Limit != nil || call.Spec.SessionRef == nil || who.Output == nil ||
		!slices.Contains(imageNames, strings.ToLower(path.Ext(read.Path))) || later && read.SHA256 == "" {
		return
	}
	file := outputclient.File{Namespace: call.Namespace, Session: call.Spec.SessionRef.Name, Path: read.Path}
	_ = s.showImage(extra, who, r, read.Path, func(to io.Writer) error {
		sum := sha256.New()
		err := who.Output.Download(ctx, file, io.MultiWriter(to, sum), nil)
		if err == nil && read.SHA256 != "" && read.SHA256 != hex.EncodeToString(sum.Sum(nil)) {
			return outputclient.ErrChanged
		}
		return err
	})
}

// imageOf shows a whole artifact that is an image; nil for everything else.
func (s *Server) imageOf(
	ctx context.Context, extra *mcp.RequestExtra, who *identity.Requester, kept *v1alpha1.Artifact, query *outputclient.Query,
) (*reply.Result, error) {
	if kept == nil || query.Offset != 0 || !slices.Contains(imageTypes, kept.MediaType) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	whole := *query
	whole.Limit = 0
	r := &reply.Result{Reason: v1alpha1.ReasonCompleted, Call: query.Name, Succeeded: true}
	err := s.showImage(extra, who, r, query.Artifact, func(to io.Writer) error {
		_, err := who.Output.Copy(ctx, whole, outputclient.Sink{Write: func(p []byte) error { _, err := to.Write(p); return err }})
		return err
	})
	if err != nil && !errors.Is(err, errImageTooLarge) && !errors.Is(err, errImagesBusy) {
		return nil, err
	}
	if r.Image == nil {
		r.Output = fmt.Sprintf("%s is a file of %d bytes that can't be shown as an image", reply.Plain(kept.Path), kept.Bytes)
		if errors.Is(err, errImagesBusy) {
			r.Output += " now: " + err.Error()
		}
		r.Output += "."
	}
	return r, nil
}

// showImage has a result show an image, if what is read is one, and not too large. Over HTTP, it takes up memory until the client has read it.
func (s *Server) showImage(extra *mcp.RequestExtra, who *identity.Requester, r *reply.Result, name string, read func(to io.Writer) error) error {
	i := &picture{limit: s.images, of: who}
	defer afterAnswer(extra, i.release)
	if err := read(i); err != nil {
		return err
	}
	kind := http.DetectContentType(i.data.Bytes())
	if !slices.Contains(imageTypes, kind) {
		return nil
	}
	r.Image = &mcp.ImageContent{Data: i.data.Bytes(), MIMEType: kind}
	r.Output = fmt.Sprintf("%s is an image (%s) of %d bytes.", reply.Plain(name), kind, i.data.Len())
	return nil
}

// picture takes the bytes of an image, as far as there is memory for an answer with them.
type picture struct {
	data   bytes.Buffer
	limit  *fair.Counter[string]
	of     *identity.Requester
	memory []*fair.Share[string]
}

var (
	errImageTooLarge = errors.New("the image is too large")
	errImagesBusy    = errors.New("too many images are being sent, try again")
)

func (i *picture) Write(p []byte) (int, error) {
	if i.data.Len()+len(p) > maxImage {
		return 0, errImageTooLarge
	}
	share, ok := i.limit.Acquire(imageCopies*int64(len(p)), i.of.Tenant, i.of.User)
	if !ok {
		return 0, errImagesBusy
	}
	i.memory = append(i.memory, share)
	return i.data.Write(p)
}

func (i *picture) release() {
	for _, share := range i.memory {
		share.Release()
	}
}
