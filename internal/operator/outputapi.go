package operator

import (
	"context"
	"fmt"
	"net"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"toolcall.dev/operator/controllers/toolsession"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/subresources"
)

// +kubebuilder:rbac:groups=apiregistration.k8s.io,resources=apiservices,resourceNames=v1alpha1.subresources.toolcall.dev,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=extension-apiserver-authentication,verbs=get;list;watch

// leaseName is the name of the Lease that the leader holds.
const leaseName = "toolcall-operator"

// outputReadTimeout bounds each read of a call or a session for the aggregated API.
const outputReadTimeout = 15 * time.Second

// outputAPI is the aggregated API of this replica.
type outputAPI struct {
	server   *subresources.Server
	listener net.Listener
	// registration keeps the operator's authority in the APIService; nil when somebody else does.
	registration *subresources.Registration
	// elected is closed when this replica leads.
	elected chan struct{}
}

// newOutputAPI makes the aggregated API; nil when it is turned off. live reads from the API server.
func (r *replica) newOutputAPI(ctx context.Context, live client.Client) (*outputAPI, error) {
	o, log := r.options, r.log.WithName("output")
	if !o.OutputAPI {
		return nil, nil
	}
	port, err := portOf("--output-api-address", o.OutputAPIAddress)
	if err != nil {
		return nil, err
	}
	api := &outputAPI{elected: make(chan struct{})}
	// A replica whose caches aren't filled yet answers, too, and says that it can't.
	objects := apicache.Reader{
		Reader: apicache.ReaderWithTimeout(&r.manager, outputReadTimeout), Live: apicache.ReaderWithTimeout(live, outputReadTimeout),
	}
	api.server, err = subresources.New(subresources.Options{
		Identity: r.identity, CertDir: o.OutputAPICertDir, Namespace: o.Namespace, Service: outputAPIService, Clients: r.clients,
		Live: objects.Live, Cached: objects.Reader,
		Requesters: &access.Requesters{Reader: objects.Reader}, Reviews: r.memory.Reviews, Policies: r.memory.Policies,
		Sources: []output.Source{&dispatch.RunnerSource{Hub: r.memory.Hub, RunnerOf: r.records.RunnerOf}}, Stored: r.kept.sources(),
		Runners: r.memory.Hub, Origins: &toolsession.Servings{Objects: objects, Identity: r.identity},
		Leader: &subresources.LeaseLeader{
			Leases: r.clients.CoordinationV1().Leases(o.Namespace), Name: leaseName, Port: port, Elected: api.elected, Clock: clock.RealClock{},
		},
		Record: r.audit.record(), Clock: clock.RealClock{}, Log: log,
	})
	if err != nil {
		return nil, err
	}
	if o.OutputAPICertDir == "" {
		api.registration = &subresources.Registration{
			Client: live, Identity: r.identity, Namespace: o.Namespace, Service: outputAPIService, Log: log,
		}
	}
	if api.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", o.OutputAPIAddress); err != nil {
		return nil, fmt.Errorf("listen for the aggregated API: %w", err)
	}
	return api, nil
}

// registerFirst registers the aggregated API until the context ends, where nobody has yet. A replica that still waits for the
// cluster can't become the leader, which registers otherwise.
func (a *outputAPI) registerFirst(ctx context.Context) {
	if a == nil || a.registration == nil {
		return
	}
	first := *a.registration
	first.FirstOnly = true
	_ = first.Start(ctx)
}

// join has the API learn when this replica leads, and the leader register it.
func (a *outputAPI) join(ctx context.Context, mgr manager.Manager) error {
	if a == nil {
		return nil
	}
	go func() {
		select {
		case <-mgr.Elected():
			close(a.elected)
		case <-ctx.Done():
		}
	}()
	if a.registration == nil {
		return nil
	}
	if err := mgr.Add(a.registration); err != nil {
		return fmt.Errorf("add what registers the aggregated API: %w", err)
	}
	return nil
}
