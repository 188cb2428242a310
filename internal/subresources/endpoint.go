package subresources

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"toolcall.dev/operator/api/v1alpha1"
)

// endpoint is a subresource of which each request has a slot while it is served.
type endpoint struct {
	methods []string
	// hasPath says that something follows the subresource in the path.
	hasPath bool
	slots   *slots
	// serve answers a request. Nothing has been written when it returns an error.
	serve func(*exchange) error
}

// exchange is a request that was let in, and its client.
type exchange struct {
	*peer
	r   *http.Request
	who user.Info
	// object is what has the subresource, path what follows it.
	object types.NamespacedName
	path   string
	// session is the session whose pod is meant; nil until it was read, and the user may use it.
	session *v1alpha1.ToolSession
	// brokeOff says that an answer with a length ended before all of it was sent: what has none panics.
	brokeOff bool
}

var _ rest.Connecter = &endpoint{}

// ConnectMethods are the methods of HTTP that are served.
func (e *endpoint) ConnectMethods() []string { return e.methods }

// NewConnectOptions has the handler read the parameters: an unknown one is an error.
func (e *endpoint) NewConnectOptions() (options runtime.Object, subpath bool, subpathKey string) {
	return nil, e.hasPath, ""
}

// Connect returns what serves one request.
func (e *endpoint) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	who, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("the user is unknown")
	}
	a := exchange{who: who, object: types.NamespacedName{Namespace: request.NamespaceValue(ctx), Name: name}}
	// The resource, the name, the subresource, and what follows.
	if info, ok := request.RequestInfoFrom(ctx); ok && len(info.Parts) == 4 {
		a.path = info.Parts[3]
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Before anything is asked for that costs more, since the API server doesn't bound these requests.
		err := e.slots.admit(w, r, who.GetName(), a.object.Namespace, func(p *peer, r *http.Request) error {
			a.peer, a.r = p, r
			return e.serve(&a)
		})
		if err != nil {
			dropContentHeaders(w.Header())
			responder.Error(err)
		}
	}), nil
}

// dropContentHeaders leaves the rest for an answer that is an error.
func dropContentHeaders(h http.Header) {
	for _, name := range []string{"Content-Type", "Content-Length", "Content-Disposition", "Accept-Ranges"} {
		h.Del(name)
	}
}
