package subresources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kube-openapi/pkg/common"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	subresourcesv1alpha1 "toolcall.dev/operator/api/subresources/v1alpha1"
	"toolcall.dev/operator/internal/review"
)

const (
	// maxReviews bounds the reviews that are read and answered at the same time. Each takes up to some 20 MiB of memory: maxReviewBytes
	// in several forms, and a struct for each of maxReviewValues.
	maxReviews = 8
	// maxReviewBytes bounds a review as it is sent: a call, and a policy.
	maxReviewBytes = 3 << 19
	// maxReviewValues bounds the objects, lists and further elements of a review: an element of two bytes is a struct of hundreds.
	maxReviewValues = 16 << 10
	// reviewTimeout is how long a client may take to send a review: it has one of few places meanwhile.
	reviewTimeout = 15 * time.Second
)

// reviews answers ToolCallReviews: to create one is to ask, and nothing is stored.
type reviews struct {
	parent
	reviewer *review.Reviewer
	slots    *slots
}

var (
	_ rest.Creater              = &reviews{} //nolint:misspell // the interface has that name
	_ rest.Scoper               = &reviews{}
	_ rest.SingularNameProvider = &reviews{}
)

// New returns an empty review.
func (*reviews) New() runtime.Object { return &subresourcesv1alpha1.ToolCallReview{} }

// Create answers a review.
func (v *reviews) Create(ctx context.Context, object runtime.Object, _ rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	asked, ok := object.(*subresourcesv1alpha1.ToolCallReview)
	if !ok {
		return nil, badRequest("the request has no ToolCallReview")
	}
	who, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("the user is unknown")
	}
	status, err := v.reviewer.Review(ctx, who, request.NamespaceValue(ctx), &asked.Spec)
	if err != nil {
		return nil, err
	}
	return &subresourcesv1alpha1.ToolCallReview{
		ObjectMeta: metav1.ObjectMeta{Namespace: request.NamespaceValue(ctx)}, Spec: asked.Spec, Status: *status,
	}, nil
}

// bounded lets so many reviews in at the same time, before anything is read that costs memory. It comes after authorization.
func (v *reviews) bounded(next http.Handler, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, isKnown := request.RequestInfoFrom(r.Context())
		who, hasUser := request.UserFrom(r.Context())
		if !isKnown || !hasUser || info.Resource != "toolcallreviews" {
			next.ServeHTTP(w, r)
			return
		}
		err := v.slots.admit(w, r, who.GetName(), info.Namespace, func(asking *peer, r *http.Request) error {
			if err := checkReview(asking, r); err != nil {
				return err
			}
			next.ServeHTTP(w, r)
			return nil
		})
		if err != nil {
			responsewriters.ErrorNegotiated(err, codecs, GroupVersion, w, r)
		}
	})
}

// checkReview refuses a body that could take far more memory than it has bytes: the aliases of YAML multiply what they name, and so do
// empty elements of a list. It keeps the body for whoever reads it next.
func checkReview(from *peer, r *http.Request) error {
	if r.Method != http.MethodPost || r.Body == nil {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != runtime.ContentTypeJSON {
		return statusError(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, nil, "a review must be sent as %s", runtime.ContentTypeJSON)
	}
	// Not every reader can be given a time.
	_ = from.SetReadDeadline(time.Now().Add(reviewTimeout))
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxReviewBytes+1))
	_ = from.SetReadDeadline(time.Time{})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return statusError(http.StatusRequestTimeout, metav1.StatusReasonTimeout, nil, "the review came too slowly")
	case err != nil:
		return badRequest("the review broke off: %s", err.Error())
	case len(raw) > maxReviewBytes:
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxReviewBytes))
	case valuesOf(raw) > maxReviewValues:
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("a review has at most %d values", maxReviewValues))
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(raw), r.Body}
	return nil
}

// valuesOf counts the objects, the lists and the further elements of both in JSON. Of what isn't JSON it counts no fewer than a decoder
// comes to read.
func valuesOf(raw []byte) (count int) {
	inText := false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			inText = !inText
		case inText && c == '\\':
			i++
		case !inText && (c == '{' || c == '[' || c == ','):
			count++
		}
	}
	return count
}

// openAPIDefinitions adds the review to what the library has. Which fields there are, the documentation says.
func openAPIDefinitions(reference common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	kind := GroupVersion.WithKind("ToolCallReview")
	all := maps.Clone(openapi.GetOpenAPIDefinitions(reference))
	all[openapiutil.GetCanonicalTypeName(&subresourcesv1alpha1.ToolCallReview{})] = common.OpenAPIDefinition{Schema: spec.Schema{
		SchemaProps: spec.SchemaProps{
			Description: fmt.Sprintf("ToolCallReview of %s asks whether a call would run. Nothing is stored.", GroupVersion),
			Type:        []string{"object"},
		},
		VendorExtensible: spec.VendorExtensible{Extensions: spec.Extensions{
			"x-kubernetes-preserve-unknown-fields": true,
			// The library knows the kind by the name of the type, which isn't a name that its clients can have.
			"x-kubernetes-group-version-kind": []any{map[string]any{"group": kind.Group, "version": kind.Version, "kind": kind.Kind}},
		}},
	}}
	return all
}
