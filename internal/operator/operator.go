package operator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"toolcall.dev/operator/internal/apiclock"
	"toolcall.dev/operator/internal/clusternet"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/subresources"
	"toolcall.dev/operator/internal/tracing"
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
	now := apiclock.New(time.Now, log.WithName("clock"))
	conf.Wrap(now.Wrap)
	metrics.RegisterClockSkew(func() time.Duration { return now.Skew().Operator }, func() time.Duration { return now.Skew().APIServers })
	clients, err := kubernetes.NewForConfig(conf)
	if err != nil {
		return fmt.Errorf("make the API client: %w", err)
	}
	features, err := awaitCluster(ctx, clients, o, log)
	if err != nil {
		return err
	}
	identity, err := loadIdentity(ctx, o, clients, log)
	if err != nil {
		return err
	}
	port, err := o.dispatchPort()
	if err != nil {
		return err
	}
	endpoints, err := endpoints(ctx, o, port, clients)
	if err != nil {
		return err
	}
	mgr, err := newManager(conf, o, log)
	if err != nil {
		return err
	}
	memory := controllers.NewMemory(now, clients.AuthorizationV1().SubjectAccessReviews(), queue.BudgetOptions{
		MaxCalls: o.MaxPendingCalls, MaxBytes: o.MaxPendingBytes,
	})
	metrics.RegisterRunnerConnections(memory.Hub.Len)
	metrics.RegisterRequestLimit(o.QPS)
	records := &dispatch.Records{Cached: mgr.GetCache(), Live: mgr.GetAPIReader()}
	if err := mgr.Add(&listener{address: o.DispatchAddress, identity: identity, hub: memory.Hub, records: records, clock: now, log: log.WithName("dispatch")}); err != nil {
		return fmt.Errorf("add the listener for runners: %w", err)
	}
	trace, err := tracing.FromEnv(ctx, os.Getenv)
	if err != nil {
		return err
	}
	defer endTracing(ctx, trace)
	around, err := addSurroundings(mgr, clients, log.WithName("network"))
	if err != nil {
		return err
	}
	kept, err := openOutputStore(ctx, o, memory, log.WithName("output-store"))
	if err != nil {
		return err
	}
	defer kept.close()
	api, err := newOutputAPI(ctx, mgr, o, outputOptions{
		clients: clients, identity: identity, reviews: memory.Reviews, now: now, log: log.WithName("output"),
		sources: []output.Source{&dispatch.RunnerSource{Hub: memory.Hub, RunnerOf: records.RunnerOf}}, stored: kept.sources(),
		hub: memory.Hub,
	})
	if err != nil {
		return err
	}
	err = controllers.Setup(mgr, controllers.Options{
		Memory: memory, Identity: identity, Trace: trace, ConcurrentCalls: o.ConcurrentCalls, Clock: now, Namespaces: o.Namespaces,
		Outputs: kept.outputs,
		Cluster: around,
		Runtime: jobspec.Runtime{
			RunnerImage: o.RunnerImage, CopyRunner: features.noImageVolumes != "", Domain: around.Domain(), Search: around.Search(), Endpoints: endpoints, CA: identity.CA(),
		},
		Operator: controllers.OperatorAddress{Namespace: o.Namespace, Port: port},
	})
	if err != nil {
		return err
	}
	if err := runAll(ctx, mgr, api); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

// resolvConfPath is where the kubelet says which nameservers a pod asks.
const resolvConfPath = "/etc/resolv.conf"

// addSurroundings has the manager keep the addresses of the cluster up to date.
func addSurroundings(mgr ctrl.Manager, clients kubernetes.Interface, log logr.Logger) (*clusternet.Source, error) {
	around, err := clusternet.New(clients, resolvConfPath, log)
	if err != nil {
		return nil, err
	}
	return around, mgr.Add(around)
}

// awaitCluster waits until the cluster has what the operator needs, and says what it has besides.
func awaitCluster(ctx context.Context, clients kubernetes.Interface, o *Options, log logr.Logger) (*clusterFeatures, error) {
	if err := awaitAPI(ctx, clients.Discovery(), log); err != nil {
		return nil, err
	}
	if err := awaitRights(ctx, clients.AuthorizationV1().SelfSubjectAccessReviews(), o, log); err != nil {
		return nil, err
	}
	features, err := findFeatures(ctx, clients, o, log)
	if err != nil {
		return nil, err
	}
	features.report(log)
	return features, awaitKinds(ctx, clients.Discovery().RESTClient(), o.Namespaces, log)
}

// endTracing sends the last traces, also when ctx has ended.
func endTracing(ctx context.Context, trace *tracing.Tracer) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	_ = trace.Shutdown(last)
}

func newManager(conf *rest.Config, o *Options, log logr.Logger) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("build the scheme: %w", err)
	}
	labels, err := subresources.LeaderLabels(o.PodIP)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(conf, ctrl.Options{
		Scheme:                        scheme,
		Logger:                        log,
		Cache:                         apicache.Options(o.Namespaces),
		Client:                        client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Metrics:                       metricsserver.Options{BindAddress: o.MetricsAddress},
		HealthProbeBindAddress:        o.HealthAddress,
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
	synced := func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches are not filled yet")
		}
		return nil
	}
	alive := func(*http.Request) error { return nil }
	return mgr, errors.Join(mgr.AddHealthzCheck("alive", alive), mgr.AddReadyzCheck("caches", synced))
}

// endpoints are where runners find the operator: this very pod first, which is the fastest way, then the
// Service, which leads to whichever replica there is later.
func endpoints(ctx context.Context, o *Options, port int32, clients kubernetes.Interface) ([]string, error) {
	service, err := clients.CoreV1().Services(o.Namespace).Get(ctx, o.DispatchService, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get Service %s/%s, which runners need: %w", o.Namespace, o.DispatchService, err)
	}
	list := []string{net.JoinHostPort(o.PodIP, fmt.Sprint(port))}
	if ip := service.Spec.ClusterIP; ip != "" && ip != "None" && len(service.Spec.Ports) > 0 {
		list = append(list, net.JoinHostPort(ip, fmt.Sprint(service.Spec.Ports[0].Port)))
	}
	return list, nil
}

// listener serves runners while this replica is the leader: a runner that comes to another one is turned away
// by the closed port and tries the next endpoint.
type listener struct {
	address  string
	identity *dispatch.Identity
	hub      *dispatch.Hub
	records  *dispatch.Records
	clock    clock.PassiveClock
	log      logr.Logger
}

// NeedLeaderElection makes the manager start it on the leader only.
func (l *listener) NeedLeaderElection() bool { return true }

// Start serves until the context ends.
func (l *listener) Start(ctx context.Context) error {
	conf, err := l.identity.ServerTLS(time.Now())
	if err != nil {
		return err
	}
	raw, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.address)
	if err != nil {
		return fmt.Errorf("listen for runners: %w", err)
	}
	l.hub.Listening(l.clock.Now())
	server := &dispatch.Server{Hub: l.hub, Authenticate: l.identity.CheckToken, Records: l.records, TLS: conf, Log: l.log}
	return server.Serve(ctx, raw)
}
