package subresources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/audit"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/review"
	"toolcall.dev/operator/internal/snapshot"
	"toolcall.dev/operator/internal/version"
)

// Bounds of connections and of the shutdown.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 90 * time.Second
	// maxStreams is how many requests one connection of the API server carries at the same time.
	maxStreams = 1000
	// A peer that is silent for pingAfter is asked whether it is there: a follow that nobody reads would last for ever.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
	// shutdownTimeout is how long requests may take to end once the server stops.
	shutdownTimeout = 10 * time.Second
)

// Options are what the server needs.
type Options struct {
	// Identity issues the server's certificate.
	Identity *dispatch.Identity
	// CertDir has tls.crt and tls.key, which the API server is shown instead of a certificate by the Identity. They are read again
	// when they change. Empty for none.
	CertDir string
	// Namespace and Service are where the API server finds the server.
	Namespace, Service string
	// Clients asks the API server who may what, and whom to trust.
	Clients kubernetes.Interface
	// Live reads calls and sessions from the API server, Cached what of them the operator keeps in memory.
	Live, Cached client.Reader
	// Requesters and Reviews say whose session it is, and what users may use.
	Requesters *access.Requesters
	Reviews    *access.Reviews
	// Policies keeps policies compiled.
	Policies *apicache.Compiled
	// Sources have the output of calls. They are asked in their order.
	Sources []output.Source
	// Stored have the output of calls that have ended, at every replica. They are asked after the Sources, for what the status of
	// a call doesn't say that it isn't stored.
	Stored []output.Source
	// Runners and Origins have the sessions whose files are served.
	Runners *dispatch.Hub
	Origins snapshot.Origins
	// Leader says where the sources are complete; nil if that is here.
	Leader Leader
	// Record has a record of a transfer of a file or of input written; nil for none.
	Record func(audit.Record)
	// RequestTimeout is how long a request may take that isn't long-running; 0 for a minute.
	RequestTimeout time.Duration
	Clock          clock.WithTicker
	Log            logr.Logger
}

// Server is the aggregated API.
type Server struct {
	trust       *trust
	certificate *certificate
	// given is the certificate that somebody else makes; nil for none.
	given   *certwatcher.CertWatcher
	generic *genericapiserver.GenericAPIServer
	stop    context.CancelFunc
	log     logr.Logger
}

// New makes a server that isn't running yet.
func New(o Options) (*Server, error) {
	trust, err := newTrust(o.Clients, o.Identity)
	if err != nil {
		return nil, err
	}
	authorizer, err := newAuthorizer(o.Clients)
	if err != nil {
		return nil, err
	}
	stopping, stop := context.WithCancel(context.Background())
	server := &Server{
		trust:       trust,
		certificate: &certificate{identity: o.Identity, service: o.Service + "." + o.Namespace + ".svc", clock: o.Clock},
		stop:        stop,
		log:         o.Log,
	}
	if o.CertDir != "" {
		if server.given, err = watchCertificate(o.CertDir); err != nil {
			return nil, err
		}
	}
	snapshots := snapshot.New(snapshot.Sources{
		Objects: apicache.Reader{Reader: o.Cached, Live: o.Live}, Policies: o.Policies, Requesters: o.Requesters, Reviews: o.Reviews, Origins: o.Origins,
	})
	reviewer := &review.Reviewer{Snapshots: snapshots, Authorizer: authorizer, Clock: o.Clock}
	logs := &logs{
		calls:    &calls{live: o.Live, cached: o.Cached, stored: cache.NewLRUExpireCache(storedCalls)},
		reviewer: reviewer,
		rights:   &rights{sessions: o.Live, requesters: o.Requesters, reviews: o.Reviews},
		sources:  o.Sources,
		stored:   o.Stored,
		clock:    o.Clock,
	}
	proxy := &proxy{
		rules: &sessionRules{snapshots}, reviewer: reviewer,
		runners: o.Runners, record: o.Record, clock: o.Clock, log: o.Log,
		sessions: fair.NewCounter[types.NamespacedName](fair.Unbounded, maxTransfersPerSession),
	}
	if o.Leader != nil {
		logs.forwarder = newForwarder(o.Leader, server.certificate)
		proxy.forwarder = logs.forwarder
	}
	reviews := &reviews{
		parent:   parent{kind: "ToolCallReview", singular: "toolcallreview"},
		reviewer: reviewer,
		slots:    newSlots(stopping, "reviews", maxReviews),
	}
	scheme := newScheme()
	codecs := serializer.NewCodecFactory(scheme)
	config := newConfig(scheme, codecs)
	config.BuildHandlerChainFunc = func(served http.Handler, c *genericapiserver.Config) http.Handler {
		return genericapiserver.DefaultBuildHandlerChain(reviews.bounded(served, codecs), c)
	}
	config.RequestTimeout = cmp.Or(o.RequestTimeout, config.RequestTimeout)
	config.Authentication.Authenticator = trust
	config.Authorization.Authorizer = authorizer
	server.generic, err = config.Complete(nil).New("subresources", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("make the aggregated API's server: %w", err)
	}
	group := newGroup(scheme, codecs, &endpoint{
		methods: []string{http.MethodGet, http.MethodHead},
		slots:   newSlots(stopping, "readers of output", maxReaders), serve: logs.serve,
	}, &endpoint{
		methods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete}, hasPath: true,
		slots: newSlots(stopping, "transfers", maxTransfers), serve: proxy.serve,
	}, reviews)
	if err := server.generic.InstallAPIGroups(group); err != nil {
		return nil, fmt.Errorf("install %s: %w", GroupVersion, err)
	}
	return server, nil
}

// newConfig leaves out what a server without storage and without users of its own doesn't need.
func newConfig(scheme *runtime.Scheme, codecs serializer.CodecFactory) *genericapiserver.Config {
	config := genericapiserver.NewConfig(codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.EnableIndex, config.EnableProfiling, config.EnableMetrics = false, false, false
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openAPIDefinitions, openapinamer.NewDefinitionNamer(scheme))
	config.OpenAPIV3Config.Info.Title = "toolcall-operator"
	config.MaxRequestBodyBytes = maxReviewBytes
	// The subresources that the cluster's own API server lets run for long.
	config.LongRunningFunc = filters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString("attach", "exec", "proxy", "log", "portforward"))
	// The server listens by itself: a connection without a certificate gets no further than the handshake.
	config.ExternalAddress = "localhost:443"
	config.LoopbackClientConfig = &rest.Config{}
	return config
}

// HeaderVersion of each answer is the version of the operator that gave it: clients without rights in the operator's namespace
// learn it from discovery.
const HeaderVersion = "Toolcall-Version"

func withVersion(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(HeaderVersion, version.String())
		next.ServeHTTP(w, r)
	})
}

// Run serves until the context ends. Then what is followed ends cleanly, so that clients go on at another replica.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	defer s.generic.Destroy()
	defer s.stop()
	s.generic.PrepareRun()
	watching, stopWatching := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer stopWatching()
	watches.Go(func() { s.trust.run(watching) })
	if s.given != nil {
		watches.Go(func() {
			if err := s.given.Start(watching); err != nil {
				s.log.Error(err, "The aggregated API's certificate isn't read again when it changes")
			}
		})
	}
	gate := dispatch.NewGate(listener)
	server := &http.Server{
		ConnState:         gate.ConnState,
		Handler:           withVersion(s.generic.Handler),
		TLSConfig:         s.tlsConfig(),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		ErrorLog:          slog.NewLogLogger(logr.ToSlogHandler(s.log.V(1)), slog.LevelInfo),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(gate, "", "") }()
	s.log.Info("Serve the aggregated API", "group", GroupVersion.String(), "address", listener.Addr().String())
	select {
	case err := <-ended:
		return fmt.Errorf("serve the aggregated API: %w", err)
	case <-ctx.Done():
	}
	s.stop()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		s.log.Info("Requests to the aggregated API were cut off", "reason", err.Error())
		_ = server.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the aggregated API: %w", err)
	}
	return nil
}
