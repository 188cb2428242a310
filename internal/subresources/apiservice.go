package subresources

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/dispatch"
)

// APIServiceName is the name of the object that has the API server pass requests on.
var APIServiceName = GroupVersion.Version + "." + GroupVersion.Group

var apiServiceKind = schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}

// checkInterval is how often the APIService is looked at: whoever replaces it takes the authority away.
const checkInterval = 10 * time.Second

// Registration keeps the operator's authority in the APIService, so that the API server believes that it talks to the operator.
// The leader does that.
type Registration struct {
	// Client reads past the cache, and writes.
	Client   client.Client
	Identity *dispatch.Identity
	// Namespace and Service are those that the APIService leads to. One that leads elsewhere isn't touched.
	Namespace, Service string
	// FirstOnly leaves an authority that is there alone. That is for a replica that isn't the leader.
	FirstOnly bool
	Log       logr.Logger
}

// NeedLeaderElection makes the manager start it on the leader only.
func (*Registration) NeedLeaderElection() bool { return true }

// Start looks after the APIService until the context ends.
func (r *Registration) Start(ctx context.Context) error {
	var said string
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := r.ensure(ctx)
		if err == nil {
			said = ""
			return
		}
		if said != err.Error() && ctx.Err() == nil {
			r.Log.Info("The aggregated API isn't registered", "reason", err.Error())
			said = err.Error()
		}
	}, checkInterval)
	return nil
}

// ensure writes the authority if it isn't there.
func (r *Registration) ensure(ctx context.Context) error {
	service := &unstructured.Unstructured{}
	service.SetGroupVersionKind(apiServiceKind)
	switch err := r.Client.Get(ctx, types.NamespacedName{Name: APIServiceName}, service); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no APIService %s: install it, or start the operator with --output-api=false", APIServiceName)
	case err != nil:
		return fmt.Errorf("get APIService %s: %w", APIServiceName, err)
	}
	namespace, _, _ := unstructured.NestedString(service.Object, "spec", "service", "namespace")
	name, _, _ := unstructured.NestedString(service.Object, "spec", "service", "name")
	if namespace != r.Namespace || name != r.Service {
		return fmt.Errorf("APIService %s leads to Service %s/%s, and not to the operator's %s/%s", APIServiceName, namespace, name, r.Namespace, r.Service)
	}
	want := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Identity.Authority().Raw})
	text, _, _ := unstructured.NestedString(service.Object, "spec", "caBundle")
	if have, err := base64.StdEncoding.DecodeString(text); err == nil && bytes.Equal(have, want) {
		return nil
	}
	if r.FirstOnly && text != "" {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		// Somebody else's change in between is looked at first.
		"metadata": map[string]any{"resourceVersion": service.GetResourceVersion()},
		"spec":     map[string]any{"caBundle": want},
	})
	if err != nil {
		return fmt.Errorf("encode the authority: %w", err)
	}
	if err := r.Client.Patch(ctx, service, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("write the authority into APIService %s: %w", APIServiceName, err)
	}
	r.Log.Info("Registered the aggregated API", "apiservice", APIServiceName)
	return nil
}
