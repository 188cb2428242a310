package operator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/clusternet"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/otlp"
	"toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/subresources"
	"toolcall.dev/operator/internal/tracing"
	"toolcall.dev/operator/internal/version"
)

// +kubebuilder:rbac:groups="",namespace=toolcall-system,resources=services,resourceNames=toolcall-dispatch,verbs=get
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=toolcall-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=toolcall-system,resources=leases,resourceNames=toolcall-operator,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=toolcall-system,resources=events,verbs=create;patch

// shutdownTimeout is how long the last traces may take to leave.
const shutdownTimeout = 5 * time.Second

// Run is the operator, until the context ends.
func Run(ctx context.Context, conf *rest.Config, o *Options, log logr.Logger) error {
	conf.QPS, conf.Burst = float32(o.QPS), int(2*o.QPS)
	// Compressing a call with its output takes the API server longer than sending it.
	conf.DisableCompression = true
	conf.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &skewTransport{next: next, log: log.WithName("clock")}
	})
	metrics.RegisterRequestLimit(o.QPS)
	r, err := newReplica(ctx, conf, o, log)
	if err != nil {
		return err
	}
	defer r.close(ctx)
	metrics.RegisterRunnerConnections(r.memory.Hub.Len)
	if err := r.run(ctx); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

// replica is this process of the operator.
type replica struct {
	options  *Options
	config   *rest.Config
	log      logr.Logger
	clients  kubernetes.Interface
	identity *dispatch.Identity
	memory   *controllers.Memory
	records  *dispatch.Records
	export   *otlp.Export
	trace    *tracing.Tracer
	kept     *outputStore
	audit    *auditLog
	// manager is made when the cluster has what it needs.
	manager lateManager
	// health is where the kubelet asks; nil for nowhere.
	health net.Listener
	// api is nil when it is turned off.
	api *outputAPI
}

// newReplica makes what serves before the cluster has all that the operator needs. It waits for the API server and the identity.
func newReplica(ctx context.Context, conf *rest.Config, o *Options, log logr.Logger) (*replica, error) {
	clients, err := kubernetes.NewForConfig(conf)
	if err != nil {
		return nil, fmt.Errorf("make the API client: %w", err)
	}
	if err := awaitAPI(ctx, clients.Discovery(), log); err != nil {
		return nil, err
	}
	r := &replica{options: o, config: conf, log: log, clients: clients}
	if r.identity, err = loadIdentity(ctx, o, clients, log); err != nil {
		return nil, err
	}
	r.memory = controllers.NewMemory(clock.RealClock{}, clients.AuthorizationV1().SubjectAccessReviews(), queue.PendingOptions{
		MaxCalls: o.MaxPendingCalls, MaxBytes: o.MaxPendingBytes,
	})
	if r.kept, err = openOutputStore(ctx, o, r.memory, log.WithName("output-store")); err != nil {
		return nil, err
	}
	if err = r.startTelemetry(ctx); err == nil {
		r.audit = newAuditLog(o, r.export.Records("toolcall.audit"), log.WithName("audit"))
		err = r.listen(ctx)
	}
	if err != nil {
		r.close(ctx)
		return nil, err
	}
	return r, nil
}

// startTelemetry has calls recorded where the environment names an OTLP endpoint; with an audit log its records, too.
func (r *replica) startTelemetry(ctx context.Context) (err error) {
	log, signals := r.log.WithName("otlp"), []otlp.Signal{otlp.Traces, otlp.Metrics}
	if r.options.AuditLog != "" {
		signals = append(signals, otlp.Logs)
	}
	r.export, err = otlp.New(ctx, os.Getenv, otlp.Options{
		Service: "toolcall-operator", Version: version.String(), Signals: signals,
		Lost: func(signal otlp.Signal, n int) { metrics.CountLostTelemetry(string(signal), n) },
		Log:  func(err error) { log.Error(err, "Failed to export telemetry") },
	})
	if err != nil {
		return err
	}
	r.trace, err = tracing.New(r.export.Traces, r.export.Metrics, r.options.Trace)
	return err
}

// listen opens the ports that answer from the start.
func (r *replica) listen(ctx context.Context) (err error) {
	if r.health, err = listenForHealth(ctx, r.options.HealthAddress); err != nil {
		return err
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	live, err := client.New(r.config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make the client that reads past the cache: %w", err)
	}
	r.records = &dispatch.Records{Cached: &r.manager, Live: live}
	r.api, err = r.newOutputAPI(ctx, live)
	return err
}

// close ends what newReplica made.
func (r *replica) close(ctx context.Context) {
	if r.health != nil {
		_ = r.health.Close()
	}
	r.kept.close()
	// The last traces are sent, also when ctx has ended.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := r.export.Shutdown(last); err != nil {
		r.log.Error(err, "Failed to export the last telemetry")
	}
}

// run works, and serves the kubelet and the aggregated API from the same moment: they don't wait for the cluster.
func (r *replica) run(ctx context.Context) error {
	var servers []func(context.Context) error
	if r.health != nil {
		servers = append(servers, func(ctx context.Context) error { return serveHealth(ctx, r.health, r.manager.checkCaches) })
	}
	if r.api != nil {
		servers = append(servers, func(ctx context.Context) error { return r.api.server.Run(ctx, r.api.listener) })
	}
	return runAll(ctx, r.work, servers...)
}

// work waits for what the cluster must have, then runs the controllers.
func (r *replica) work(ctx context.Context) error {
	features, service, err := r.awaitCluster(ctx)
	if err != nil {
		return err
	}
	mgr, err := newManager(r.config, r.options, r.log)
	if err != nil {
		return err
	}
	if err := r.addControllers(mgr, features, service); err != nil {
		return err
	}
	if err := r.api.join(ctx, mgr); err != nil {
		return err
	}
	r.manager.set(mgr)
	return mgr.Start(ctx)
}

// addControllers has the manager run all that the leader does. The Service is that for runners.
func (r *replica) addControllers(mgr ctrl.Manager, features *clusterFeatures, service *corev1.Service) error {
	o := r.options
	port, err := portOf("--dispatch-address", o.DispatchAddress)
	if err != nil {
		return err
	}
	around, err := clusternet.New(r.clients, resolvConfPath, r.log.WithName("network"))
	if err != nil {
		return err
	}
	if err := mgr.Add(around); err != nil {
		return fmt.Errorf("add what keeps the addresses of the cluster up to date: %w", err)
	}
	// The manager runs a function on the leader only.
	if err := mgr.Add(manager.RunnableFunc(r.serveRunners)); err != nil {
		return fmt.Errorf("add the listener for runners: %w", err)
	}
	if err := r.audit.join(mgr); err != nil {
		return err
	}
	return controllers.Setup(mgr, controllers.Options{
		Memory: r.memory, Identity: r.identity, Trace: r.trace, ConcurrentCalls: o.ConcurrentCalls, Clock: clock.RealClock{}, Namespaces: o.Namespaces,
		Outputs: r.kept.outputs, Audit: r.audit.auditor(),
		Cluster: around,
		Runtime: jobspec.Runtime{
			RunnerImage: o.RunnerImage, CopyRunner: features.noImageVolumes != "", Users: o.Users, Domain: around.Domain(), Search: around.Search(), CA: r.identity.CA(),
			Endpoints: endpoints(o.PodIP, port, service),
		},
		OperatorNamespace: o.Namespace, OperatorPort: port,
	})
}

// runAll runs the work and the servers until one of them ends.
func runAll(ctx context.Context, work func(context.Context) error, servers ...func(context.Context) error) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	var group errgroup.Group
	for _, serve := range servers {
		group.Go(func() error {
			defer stop()
			return serve(running)
		})
	}
	err := work(running)
	stop()
	return errors.Join(err, group.Wait())
}

// resolvConfPath is where the kubelet says which nameservers a pod asks.
const resolvConfPath = "/etc/resolv.conf"

// awaitCluster waits until the cluster has what the operator needs, and says what it has besides. However long that takes, the
// process stays: the aggregated API answers meanwhile, so that namespaces can be deleted. It ends only in a cluster that is
// unsupported. The Service is that for runners.
func (r *replica) awaitCluster(ctx context.Context) (features *clusterFeatures, service *corev1.Service, err error) {
	waiting, stop := context.WithCancel(ctx)
	var registering sync.WaitGroup
	defer registering.Wait()
	defer stop()
	registering.Go(func() { r.api.registerFirst(waiting) })
	if err := awaitRights(ctx, r.clients.AuthorizationV1().SelfSubjectAccessReviews(), r.options, r.log); err != nil {
		return nil, nil, err
	}
	if features, err = awaitFeatures(ctx, r.clients, r.options, r.log); err != nil {
		return nil, nil, err
	}
	if err := awaitKinds(ctx, r.clients.Discovery().RESTClient(), r.options.Namespaces, r.log); err != nil {
		return nil, nil, err
	}
	if service, err = awaitService(ctx, r.clients, r.options, r.log); err != nil {
		return nil, nil, err
	}
	features.report(r.log)
	return features, service, nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("build the scheme: %w", err)
	}
	return scheme, nil
}

func newManager(conf *rest.Config, o *Options, log logr.Logger) (manager.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	labels, err := subresources.LeaderLabels(o.PodIP)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(conf, ctrl.Options{
		Scheme:  scheme,
		Logger:  log,
		Cache:   apicache.Options(o.Namespaces),
		Client:  client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Metrics: metricsserver.Options{BindAddress: o.MetricsAddress},
		// The health of a replica is served before the manager starts.
		HealthProbeBindAddress:        "0",
		PprofBindAddress:              o.PprofAddress,
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionLabels:          labels,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr.To(leaseDuration),
		RenewDeadline:                 ptr.To(renewDeadline),
		RetryPeriod:                   ptr.To(retryPeriod),
		// A replica that waits for the lease has its caches filled already.
		Controller: config.Controller{EnableWarmup: ptr.To(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	return mgr, nil
}

// endpoints are where runners find the operator: this very pod first, which is the fastest way, then the
// Service, which leads to whichever replica there is later.
func endpoints(podIP string, port int32, service *corev1.Service) []string {
	list := []string{net.JoinHostPort(podIP, fmt.Sprint(port))}
	if ip := service.Spec.ClusterIP; ip != "" && ip != "None" && len(service.Spec.Ports) > 0 {
		list = append(list, net.JoinHostPort(ip, fmt.Sprint(service.Spec.Ports[0].Port)))
	}
	return list
}

// serveRunners serves runners while this replica is the leader: a runner that comes to another one is turned away
// by the closed port and tries the next endpoint.
func (r *replica) serveRunners(ctx context.Context) error {
	raw, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.options.DispatchAddress)
	if err != nil {
		return fmt.Errorf("listen for runners: %w", err)
	}
	hub := r.memory.Hub
	hub.Listening(time.Now())
	server := &dispatch.Server{Hub: hub, Identity: r.identity, Records: r.records, Log: r.log.WithName("dispatch")}
	return server.Serve(ctx, raw)
}
