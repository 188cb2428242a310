package controllers_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/executionenvironment"
	"toolcall.dev/operator/controllers/retention"
	"toolcall.dev/operator/controllers/toolcall"
	"toolcall.dev/operator/controllers/toolsession"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	callqueue "toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/internal/trigger"
)

// The API server of all tests in this package; nil when there is none.
var (
	apiServer *rest.Config
	shared    cluster.Cluster
)

// suite has a cache for the reconcilers to read from. Listeners, connections and managers end with their test.
var suite = newSuite()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

func newSuite() *apiservertest.Suite {
	ctx, cancel := context.WithCancel(context.Background())
	return &apiservertest.Suite{
		// From Kubernetes 1.37 on, the API server asks no admission webhook about reviews; refuseReviews needs one that is asked.
		Options: apiservertest.Options{CRDs: true, Configure: func(env *envtest.Environment, _ string) error {
			env.ControlPlane.GetAPIServer().Configure().Append("feature-gates", "ExcludeAdmissionWebhookVirtualResources=false")
			return nil
		}},
		Setup: func(s *apiservertest.Server) (err error) {
			apiServer = s.Config
			shared, err = startCache(ctx, s.Config)
			return err
		},
		Teardown: func() error {
			cancel()
			return nil
		},
		FindLeaks: true,
	}
}

func startCache(ctx context.Context, conf *rest.Config) (cluster.Cluster, error) {
	c, err := cluster.New(conf, func(o *cluster.Options) {
		o.Scheme = apiservertest.Scheme()
		o.Logger = logr.Discard()
		o.Cache = apicache.Options(nil)
		o.Cache.ReaderFailOnMissingInformer = true
		o.Client.Cache = &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}
	})
	if err != nil {
		return nil, err
	}
	if err := apicache.Setup(c.GetCache()); err != nil {
		return nil, err
	}
	go func() { _ = c.Start(ctx) }()
	if !c.GetCache().WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("the cache did not fill")
	}
	return c, nil
}

// seeds is how many stories a test tells: n, or with TOOLCALL_STORIES=m m times as many.
func seeds(n int) uint64 {
	if times, err := strconv.Atoi(os.Getenv("TOOLCALL_STORIES")); err == nil {
		n *= times
	}
	return uint64(n)
}

// clockAt is a clock that stands still until it is moved. While another goroutine reads it, set moves it.
type clockAt struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clockAt) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clockAt) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *clockAt) set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

// world is a namespace, an operator without a manager, and a listener for runners.
type world struct {
	t         *testing.T
	client    client.Client
	namespace string
	identity  *dispatch.Identity
	clock     *clockAt
	events    *events.FakeRecorder

	hub        *dispatch.Hub
	hosts      *host.Registry
	nodes      *host.Nodes
	objects    apicache.Reader
	address    string
	reconciler *toolcall.Reconciler
	finished   *retention.Reconciler
	sessions   *toolsession.Reconciler
	pools      *executionenvironment.Reconciler
	// pending bounds what a requester keeps pending; reviews replaces the authorizer when it is set.
	pending callqueue.BudgetOptions
	reviews authorizationv1client.SubjectAccessReviewInterface
	queue   *callqueue.SessionQueue
	earlier *host.EarlierCalls
	// woken are the calls whose turn came.
	woken []string
	// expired are the calls whose time to stay is up.
	expired chan string
	// use replaces the reconciler's client; nil for the shared one.
	use client.Client
	// readFails says which of the reconcilers' reads fail; nil for none.
	readFails func() bool
	// outputs has output stored; nil for an operator without a store.
	outputs *toolcall.Outputs
	// records are what hellos are compared with; nil for none.
	records *dispatch.Records
}

func newWorld(t *testing.T) *world {
	t.Helper()
	suite.Need(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	if err := shared.GetClient().Create(context.Background(), namespace); err != nil {
		t.Fatal(err)
	}
	identity, err := dispatch.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, client: shared.GetClient(), namespace: namespace.Name, identity: identity,
		clock: &clockAt{now: time.Now()}, events: events.NewFakeRecorder(1000), expired: make(chan string, 100),
	}
	w.restart()
	return w
}

// restart is what a crash of the operator leaves: the API, and nothing else. Runners have to connect again.
func (w *world) restart() {
	w.t.Helper()
	w.hub = dispatch.NewHub(func(*dispatch.Session) {})
	w.hub.Listening(w.clock.Now())
	w.hosts = host.NewRegistry(w.hub)
	w.nodes = host.NewNodes()
	conf, err := w.identity.ServerTLS(time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	server := &dispatch.Server{Hub: w.hub, Authenticate: w.identity.CheckToken, Records: w.records, TLS: conf, Log: logr.Discard()}
	go func() { _ = server.Serve(ctx, listener) }()
	w.rebuild()
}

func (w *world) rebuild() {
	used := w.use
	if used == nil {
		used = w.client
	}
	reviews := w.reviews
	if reviews == nil {
		reviews = kubernetes.NewForConfigOrDie(apiServer).AuthorizationV1().SubjectAccessReviews()
	}
	w.objects = apicache.Reader{Reader: used, Live: shared.GetAPIReader()}
	if w.readFails != nil {
		fails := func(int) bool { return w.readFails() }
		w.objects = apicache.Reader{
			Reader: failingReads{used, new(int), fails}, Live: failingReads{shared.GetAPIReader(), new(int), fails},
		}
	}
	compiled := &apicache.Compiled{}
	runtime := jobspec.Runtime{RunnerImage: "example.com/runner:1", Endpoints: []string{"127.0.0.1:1"}, CA: w.identity.CA()}
	waiting := callqueue.New(func(call types.NamespacedName) { w.woken = append(w.woken, call.Name) })
	w.pools = executionenvironment.NewReconciler(executionenvironment.Options{
		Client: used, Objects: w.objects, Clock: w.clock, Events: w.events, Policies: compiled, Hub: w.hub, Hosts: w.hosts,
		Nodes: w.nodes, Identity: w.identity, Runtime: runtime, Queue: waiting, Calls: trigger.New(),
		OperatorNamespace: "toolcall-system", OperatorPort: 9443,
	})
	w.queue = callqueue.NewSessionQueue(func(call types.NamespacedName) { w.woken = append(w.woken, call.Name) })
	w.earlier = &host.EarlierCalls{}
	if err := w.earlier.Read(context.Background(), shared.GetAPIReader(), []string{w.namespace}); err != nil {
		w.t.Fatal(err)
	}
	w.sessions = toolsession.NewReconciler(toolsession.Options{
		Client: used, Objects: w.objects, Clock: w.clock, Events: w.events, Policies: compiled, Identity: w.identity, Runtime: runtime,
		Hub: w.hub, Hosts: w.hosts, Pools: trigger.New(), SessionQueue: w.queue, Earlier: w.earlier, Concurrent: 4,
	})
	w.finished = &retention.Reconciler{
		Client: used, Objects: w.objects, Clock: w.clock,
		Schedule: retention.NewSchedule(w.clock, func(call types.NamespacedName) { w.expired <- call.Name }),
	}
	w.reconciler = toolcall.NewReconciler(toolcall.Options{
		Client: used, Objects: w.objects, Clock: w.clock, Events: w.events, Policies: compiled,
		Requesters: &access.Requesters{Reader: used}, Reviews: access.NewReviews(reviews, w.clock),
		Identity: w.identity, Hub: w.hub, Hosts: w.hosts, Nodes: w.nodes,
		Placers:  []host.Placer{&host.Warm{Runtime: runtime, Registry: w.hosts}, &host.Cold{Runtime: runtime, Sealer: w.identity}},
		Sessions: &toolsession.Servings{Objects: w.objects, Hub: w.hub, Identity: w.identity, Earlier: w.earlier}, SessionQueue: w.queue, Earlier: w.earlier,
		KeepSession: func(types.NamespacedName) {},
		Queue:       waiting, Pending: callqueue.NewBudget(w.pending),
		Retention:  w.finished,
		Pools:      trigger.New(),
		Wake:       func(types.NamespacedName) {},
		Outputs:    w.outputs,
		Concurrent: 16,
	})
}

// problem is why the environment says that its pool's pods don't start; empty when it doesn't.
func (w *world) problem(env *v1alpha1.ExecutionEnvironment) string {
	w.t.Helper()
	now := &v1alpha1.ExecutionEnvironment{}
	if err := shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(env), now); err != nil {
		w.t.Fatal(err)
	}
	c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionWarm)
	if c == nil || c.Reason != v1alpha1.ReasonPodsFail {
		return ""
	}
	return c.Message
}

// offered is how many runners of the environment's pool calls may claim.
func (w *world) offered(env *v1alpha1.ExecutionEnvironment) int {
	n := 0
	for _, job := range w.waiting(env) {
		if w.hosts.IsOffered(string(job.UID)) {
			n++
		}
	}
	return n
}

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		if o.GetNamespace() == "" {
			o.SetNamespace(w.namespace)
		}
		var unseen []client.CreateOption
		if !cached(o) {
			unseen = append(unseen, client.DisableReadYourWritesConsistency)
		}
		if err := w.client.Create(context.Background(), o, unseen...); err != nil {
			w.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// cached says whether the cache will show an object: waiting for one that it won't would take for ever.
func cached(o client.Object) bool {
	switch o := o.(type) {
	case *corev1.Pod:
		return o.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && o.Status.Phase != corev1.PodSucceeded
	case *batchv1.Job, *networkingv1.NetworkPolicy:
		return o.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy
	default:
		return true
	}
}

// reconcile runs one pass.
func (w *world) reconcile(call *v1alpha1.ToolCall) ctrl.Result {
	w.t.Helper()
	result, err := w.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(call)})
	if err != nil {
		w.t.Fatalf("reconcile %s: %v", call.Name, err)
	}
	w.retire(call)
	return result
}

// retire looks at whether the time of a finished call is up.
func (w *world) retire(call *v1alpha1.ToolCall) {
	w.t.Helper()
	if _, err := w.finished.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(call)}); err != nil {
		w.t.Fatalf("retire %s: %v", call.Name, err)
	}
}

// accept has a call accepted, and waits until it says so.
func (w *world) accept(call *v1alpha1.ToolCall) {
	w.t.Helper()
	w.reconcile(call)
	w.clock.now = w.clock.now.Add(time.Second)
	w.reconcile(call)
}

// get reads the call past the cache.
func (w *world) get(call *v1alpha1.ToolCall) *v1alpha1.ToolCall {
	w.t.Helper()
	now := &v1alpha1.ToolCall{}
	if err := shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(call), now); err != nil {
		w.t.Fatalf("get %s: %v", call.Name, err)
	}
	return now
}
