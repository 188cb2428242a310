package operator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
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
}

// outputOptions are what the aggregated API is made of, besides the operator's own options.
type outputOptions struct {
	clients  kubernetes.Interface
	identity *dispatch.Identity
	reviews  *access.Reviews
	// now tells the API server's time.
	now clock.PassiveClock
	// sources have the output of calls, in the order in which they are asked.
	sources []output.Source
	// stored have that of calls that have ended.
	stored []output.Source
	// hub has the runners whose files are served.
	hub *dispatch.Hub
	log logr.Logger
}

// newOutputAPI makes the aggregated API, and has the leader register it; nil when it is turned off.
func newOutputAPI(ctx context.Context, mgr manager.Manager, o *Options, with outputOptions) (*outputAPI, error) {
	if !o.OutputAPI {
		return nil, nil
	}
	port, err := portOf("--output-api-address", o.OutputAPIAddress)
	if err != nil {
		return nil, err
	}
	// A replica whose caches aren't filled yet answers, too, and says that it can't.
	cached := apicache.ReaderWithTimeout(mgr.GetClient(), outputReadTimeout)
	live := apicache.ReaderWithTimeout(mgr.GetAPIReader(), outputReadTimeout)
	server, err := subresources.New(subresources.Options{
		Identity: with.identity, CertDir: o.OutputAPICertDir, Namespace: o.Namespace, Service: o.OutputAPIService, Clients: with.clients,
		Live: live, Cached: cached,
		Requesters: &access.Requesters{Reader: cached}, Reviews: with.reviews,
		Sources: with.sources, Stored: with.stored, Runners: with.hub,
		Origins: &toolsession.Servings{Objects: apicache.Reader{Reader: cached, Live: live}, Identity: with.identity},
		Leader: &subresources.LeaseLeader{
			Leases: with.clients.CoordinationV1().Leases(o.Namespace), Name: leaseName, Port: port, Elected: mgr.Elected(), Clock: with.now,
		},
		Clock: clock.RealClock{}, Log: with.log,
	})
	if err != nil {
		return nil, err
	}
	if o.OutputAPICertDir == "" {
		if err := addRegistration(mgr, o, with); err != nil {
			return nil, err
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.OutputAPIAddress)
	if err != nil {
		return nil, fmt.Errorf("listen for the aggregated API: %w", err)
	}
	return &outputAPI{server: server, listener: listener}, nil
}

// addRegistration has the leader keep the operator's authority in the APIService.
func addRegistration(mgr manager.Manager, o *Options, with outputOptions) error {
	// The manager's client would watch APIServices, to read its own writes.
	direct, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("make the client that registers the aggregated API: %w", err)
	}
	err = mgr.Add(&subresources.Registration{
		Client: direct, Identity: with.identity, Namespace: o.Namespace, Service: o.OutputAPIService, Log: with.log,
	})
	if err != nil {
		return fmt.Errorf("add what registers the aggregated API: %w", err)
	}
	return nil
}

// runAll runs the manager and, from the same moment, the aggregated API: it answers before the caches are filled.
func runAll(ctx context.Context, mgr manager.Manager, api *outputAPI) error {
	if api == nil {
		return mgr.Start(ctx)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	group := errgroup.Group{}
	group.Go(func() error {
		defer stop()
		return api.server.Run(running, api.listener)
	})
	err := mgr.Start(running)
	stop()
	return errors.Join(err, group.Wait())
}
