// Package controllers lists the operator's controllers: calls (toolcall/), their output (output/), their deletion
// when their time is up (retention/), records of what has ended (audit/), sessions (toolsession/), environments with their
// warm pools (executionenvironment/), policies (executionpolicy/), people's decisions about calls (approval/), budgets
// (toolbudget/). It is the first thing to read.
//
// Each controller observes, decides by pure functions of what it saw, and carries out effects: it writes the API at most
// once in a pass for each object, and only then does what follows from the write. None may read Secrets, run anything
// itself, or connect to a pod: runners connect to the operator.
package controllers

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/approval"
	"toolcall.dev/operator/controllers/audit"
	"toolcall.dev/operator/controllers/executionenvironment"
	"toolcall.dev/operator/controllers/executionpolicy"
	"toolcall.dev/operator/controllers/output"
	"toolcall.dev/operator/controllers/retention"
	"toolcall.dev/operator/controllers/toolbudget"
	"toolcall.dev/operator/controllers/toolcall"
	"toolcall.dev/operator/controllers/toolsession"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/tracing"
	"toolcall.dev/operator/internal/trigger"
)

// EventSource is the reporting controller of the project's Events.
const EventSource = "toolcall.dev/operator"

// Options are what the controllers need besides the manager.
type Options struct {
	// Memory is what the operator keeps in memory.
	Memory *Memory
	// Identity makes and checks tokens and seals.
	Identity *dispatch.Identity
	// Cluster knows the addresses that restricted calls are kept from; nil for none, so that no such call can run.
	Cluster toolcall.Cluster
	// Runtime goes into every pod.
	Runtime jobspec.Runtime
	// Clock tells the time, which the times in objects are compared with.
	Clock clock.PassiveClock
	// Outputs has output stored that is more than a call's status keeps; nil for none.
	Outputs *output.Outputs
	// Audit has records written; nil for none. The rest of it is filled in here.
	Audit *audit.Auditor
	// Trace makes spans of finished calls; nil for none.
	Trace *tracing.Tracer
	// ConcurrentCalls is how many calls are reconciled at the same time.
	ConcurrentCalls int
	// Namespaces are those to work in; empty for the whole cluster.
	Namespaces []string
	// OperatorNamespace and OperatorPort are where runners find the operator.
	OperatorNamespace string
	OperatorPort      int32
}

// Memory is all that the operator keeps in memory beside the cache of API objects. Nothing of it is the only copy: the
// comment of each says how it comes back after a restart. No deadline, promise or answer depends on it.
type Memory struct {
	// Hub holds the connected runners, and the results and calls that those had which were lost. They dial in again.
	Hub *dispatch.Hub
	// Hosts holds which waiting runners calls may claim, and unrecorded claims. The environments' controller offers
	// what waits; an unrecorded claim binds nobody.
	Hosts *host.Registry
	// Nodes holds for five minutes what nodes give the runners of each environment. Runners say it again when they
	// connect; until then the environment's status says what was found before.
	Nodes *host.Nodes
	// Queue holds which calls run and wait in each environment, and what each requester keeps pending. It is seeded from the calls in
	// flight, before the first pass.
	Queue *queue.Queues
	// SessionQueue holds which calls wait in each session. The cache shows them all after a start, in their order.
	SessionQueue *queue.SessionQueue
	// Earlier holds which sessions' calls an operator before this one may have handed over. They are listed at the start.
	Earlier *host.EarlierCalls
	// Budgets holds what is in use of the ToolBudgets of each namespace that has some. It is seeded from the calls and sessions in flight
	// and, for CPU, from the calls that have ended.
	Budgets *queue.Ledger
	// Retention holds when finished calls are deleted, and the last calls of each session. It is seeded from the finished calls'
	// metadata; what ended before the start stays for its time.
	Retention *retention.Schedule
	// Policies holds compiled policies, Reviews for ten seconds that a user may use a tool. Both are asked again.
	Policies *apicache.Compiled
	Reviews  *access.Reviews
	// Calls, Finished, Stored, Sessions and Pools have calls, calls whose time is up, calls whose output is being stored, sessions and
	// environments looked at; after a start everything is looked at.
	Calls, Finished, Stored, Sessions, Pools *trigger.Trigger
	// sessionsOfJob and callsOfJob find whose a runner is that waits, in the cache: its beginning may have been lost.
	sessionsOfJob func(context.Context, types.NamespacedName) []types.NamespacedName
	callsOfJob    func(context.Context, types.NamespacedName) []ctrl.Request

	// The controllers themselves keep: the calls that ended in the last ten seconds (read from the API server otherwise), which calls wait
	// for a slot to create or change a Job, and of each pool the back-off and since when its runners aren't connected (all begin anew), which
	// streams are being stored (read from the pods again, for calls whose status says so), which calls' output is to be removed (the sweep
	// finds it), and rates of Events (begin anew).
}

// NewMemory makes an empty one.
func NewMemory(c clock.PassiveClock, reviews authorizationv1client.SubjectAccessReviewInterface, pending queue.PendingOptions) *Memory {
	m := &Memory{
		Nodes:    host.NewNodes(),
		Earlier:  &host.EarlierCalls{},
		Policies: &apicache.Compiled{},
		Reviews:  access.NewReviews(reviews, c),
		Calls:    trigger.New("toolcall"),
		Finished: trigger.New("retention"),
		Stored:   trigger.New("output"),
		Sessions: trigger.New("toolsession"),
		Pools:    trigger.New("executionenvironment"),
	}
	start := func(call types.NamespacedName) { m.Calls.Enqueue(call, trigger.PriorityStart) }
	m.Queue, m.SessionQueue = queue.New(pending, start), queue.NewSessionQueue(start)
	m.Budgets = queue.NewLedger(c.Now, func(what queue.Resource, name types.NamespacedName) {
		if what == queue.Sessions {
			m.Sessions.Enqueue(name, trigger.PriorityStart)
		} else {
			start(name)
		}
	})
	m.Retention = retention.NewSchedule(c, func(call types.NamespacedName) { m.Finished.Enqueue(call, 0) })
	m.Hub = dispatch.NewHub(m.route)
	m.Hub.Clock = c
	m.Hosts = host.NewRegistry(m.Hub)
	m.Hosts.Back = func(pool types.NamespacedName) { m.Pools.Enqueue(pool, 0) }
	return m
}

// route has the call, the environment, or the session with its calls looked at that a runner's news is for.
func (m *Memory) route(runner *dispatch.Runner, news dispatch.News) {
	hello := runner.Hello()
	object := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: hello.Namespace, Name: name}
	}
	if owner, hasBegun := runner.Owner(); hasBegun {
		m.routeNews(hello.Namespace, owner, news)
		return
	}
	if hello.Call != "" {
		m.Calls.Enqueue(object(hello.Call), trigger.PriorityStart)
		return
	}
	if m.sessionsOfJob != nil {
		for _, session := range m.sessionsOfJob(context.Background(), object(hello.Job)) {
			m.Sessions.Enqueue(session, trigger.PriorityStart)
		}
		for _, call := range m.callsOfJob(context.Background(), object(hello.Job)) {
			m.Calls.Enqueue(call.NamespacedName, trigger.PriorityStart)
		}
	}
	if hello.Pool != "" {
		m.Pools.Enqueue(object(hello.Pool), trigger.PriorityStart)
	}
}

// routeNews has the owner of a runner looked at when the runner has come or gone, and the calls that there is news of.
func (m *Memory) routeNews(namespace string, owner wire.Owner, news dispatch.News) {
	for _, call := range news.Ended {
		m.Calls.Enqueue(types.NamespacedName{Namespace: namespace, Name: call}, trigger.PriorityResult)
	}
	for _, call := range news.Calls {
		m.Calls.Enqueue(types.NamespacedName{Namespace: namespace, Name: call}, trigger.PriorityStart)
	}
	name := types.NamespacedName{Namespace: namespace, Name: owner.Name}
	switch {
	case news.Owner && owner.IsCall():
		m.Calls.Enqueue(name, trigger.PriorityStart)
	case news.Owner:
		m.Sessions.Enqueue(name, trigger.PriorityStart)
		m.SessionQueue.Wake(name, true, true)
	case owner.IsSession() && len(news.Ended) > 0:
		m.SessionQueue.Wake(name, true, true)
	}
}

// readEarlier lists the calls that an operator before this one may have handed over, for as long as that takes. Calls of
// sessions whose runners don't connect wait meanwhile.
func (m *Memory) readEarlier(ctx context.Context, api client.Reader, namespaces []string) error {
	_ = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		err := m.Earlier.Read(ctx, api, namespaces)
		if err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Failed to list the calls of sessions; retrying")
		}
		return err == nil, nil
	})
	return nil
}

const (
	// requestTimeout bounds each request of a pass, so that a slow webhook keeps a worker for no longer.
	requestTimeout = 15 * time.Second
	// StatusTimeout bounds each write of a status. One that begins when a leader gives up ends before the next one works:
	// nothing is written when a session's call is handed over, so that a write of the leader before must not arrive after that.
	StatusTimeout = 3500 * time.Millisecond
)

// Setup registers every controller of the operator.
func Setup(mgr ctrl.Manager, o Options) error {
	if err := apicache.Setup(mgr.GetCache()); err != nil {
		return fmt.Errorf("set up the cache: %w", err)
	}
	m := o.Memory
	api := apicache.WithTimeout(mgr.GetClient(), requestTimeout, StatusTimeout)
	objects := apicache.Reader{Reader: api, Live: apicache.ReaderWithTimeout(mgr.GetAPIReader(), requestTimeout)}
	recorder := mgr.GetEventRecorder(EventSource)
	finished := &retention.Reconciler{Client: api, Objects: objects, Clock: o.Clock, Schedule: m.Retention, Concurrent: max(o.ConcurrentCalls/4, 1)}
	if o.Audit != nil {
		finished.Audit = o.Audit
	}
	servings := &toolsession.Servings{Objects: objects, Hub: m.Hub, Identity: o.Identity, Earlier: m.Earlier}
	calls := toolcall.NewReconciler(toolcall.Options{
		Client: api, Objects: objects, Clock: o.Clock, Events: recorder, Policies: m.Policies,
		Requesters: &access.Requesters{Reader: api}, Reviews: m.Reviews, Identity: o.Identity, Hub: m.Hub, Hosts: m.Hosts, Runtime: o.Runtime,
		Nodes:    m.Nodes,
		Sessions: servings, SessionQueue: m.SessionQueue, Earlier: m.Earlier,
		KeepSession: func(session types.NamespacedName) { m.Sessions.Enqueue(session, 0) },
		Queue:       m.Queue, Budgets: m.Budgets, Retention: finished, Pools: m.Pools, Trace: o.Trace, Outputs: o.Outputs, Cluster: o.Cluster,
		LookAfterOutput: func(call types.NamespacedName) { m.Stored.Enqueue(call, 0) },
		Wake:            func(call types.NamespacedName) { m.Calls.Enqueue(call, trigger.PriorityStart) },
		Concurrent:      o.ConcurrentCalls,
	})
	environments := executionenvironment.NewReconciler(executionenvironment.Options{
		Client: api, Objects: objects, Clock: o.Clock, Events: recorder, Policies: m.Policies, Hub: m.Hub, Hosts: m.Hosts,
		Nodes: m.Nodes, Identity: o.Identity, Runtime: o.Runtime, Queue: m.Queue, Calls: m.Calls,
		OperatorNamespace: o.OperatorNamespace, OperatorPort: o.OperatorPort,
	})
	sessions := toolsession.NewReconciler(toolsession.Options{
		Client: api, Objects: objects, Clock: o.Clock, Events: recorder, Policies: m.Policies, Identity: o.Identity, Runtime: o.Runtime,
		Hub: m.Hub, Hosts: m.Hosts, Nodes: m.Nodes, Pools: m.Pools, SessionQueue: m.SessionQueue, Earlier: m.Earlier, Concurrent: o.ConcurrentCalls,
		Budgets: m.Budgets, SeedBudgets: calls.SeedBudgets,
	})
	m.sessionsOfJob, m.callsOfJob = sessions.SessionsOfJob, calls.RecordedIn
	stored := &output.Reconciler{
		Client: api, Objects: objects, Clock: o.Clock, Hub: m.Hub, Outputs: o.Outputs, Sessions: servings, Warn: calls.Tell,
		Done: func(call types.NamespacedName) { m.Calls.Enqueue(call, 0) },
	}
	approvals := &approval.Reconciler{Client: api, Objects: objects, Clock: o.Clock, Requesters: &access.Requesters{Reader: api}, Tell: calls.Tell}
	policies := &executionpolicy.Reconciler{Client: api, Objects: objects, Policies: m.Policies}
	budgets := &toolbudget.Reconciler{Client: api, Objects: objects, Budgets: m.Budgets, Seed: calls.SeedBudgets}
	watching, err := client.NewWithWatch(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("make the client that watches finished calls: %w", err)
	}
	if len(o.Namespaces) == 0 {
		o.Namespaces = []string{metav1.NamespaceAll}
	}
	if err := addBeside(mgr, o, objects, watching, finished); err != nil {
		return err
	}
	registerCounts(mgr, api, m)
	for name, err := range map[string]error{
		"ToolCall":             calls.SetupWithManager(mgr, m.Calls),
		"output":               stored.SetupWithManager(mgr, m.Stored),
		"finished calls":       finished.SetupWithManager(mgr, m.Finished),
		"ToolSession":          sessions.SetupWithManager(mgr, m.Sessions),
		"ExecutionEnvironment": environments.SetupWithManager(mgr, m.Pools),
		"ExecutionPolicy":      policies.SetupWithManager(mgr),
		"ToolCallApproval":     approvals.SetupWithManager(mgr),
		"ToolBudget":           budgets.SetupWithManager(mgr),
	} {
		if err != nil {
			return fmt.Errorf("set up the %s controller: %w", name, err)
		}
	}
	return nil
}

// addBeside has the manager run what isn't a controller.
func addBeside(mgr ctrl.Manager, o Options, objects apicache.Reader, watching client.WithWatch, finished *retention.Reconciler) error {
	m := o.Memory
	beside := []manager.Runnable{
		m.Retention,
		&retention.Seed{Finished: finished, Namespaces: o.Namespaces},
		manager.RunnableFunc(func(ctx context.Context) error { return m.readEarlier(ctx, objects.Live, o.Namespaces) }),
		&output.OutputCare{
			Outputs: o.Outputs, Look: func(call types.NamespacedName) { m.Stored.Enqueue(call, 0) },
			Client: watching, Namespaces: o.Namespaces, Clock: o.Clock, Log: mgr.GetLogger().WithName("output-store"),
		},
	}
	if a := o.Audit; a != nil {
		a.Client, a.Objects, a.Namespaces, a.Clock = watching, objects, o.Namespaces, o.Clock
		a.Requesters = &access.Requesters{Reader: objects.Reader}
		beside = append(beside, a)
	}
	for _, one := range beside {
		if err := mgr.Add(one); err != nil {
			return fmt.Errorf("add what runs beside the controllers: %w", err)
		}
	}
	return nil
}

// registerCounts exposes what is counted when metrics are read.
func registerCounts(mgr ctrl.Manager, api client.Reader, m *Memory) {
	metrics.RegisterCallsInFlight(whileLeading(mgr, func() metrics.Counts { return apicache.CountCalls(api, apicache.All) }))
	metrics.RegisterCallsQueued(whileLeading(mgr, func() metrics.Counts {
		waiting := m.Queue.Waiting()
		for session, n := range m.SessionQueue.Waiting() {
			waiting[apicache.EnvironmentOfSession(api, session)] += n
		}
		return waiting
	}))
	metrics.RegisterCallsAwaitingApproval(whileLeading(mgr, func() metrics.Counts { return apicache.CountCalls(api, (*v1alpha1.ToolCall).AwaitsApproval) }))
	metrics.RegisterSessions(whileLeading(mgr, func() map[v1alpha1.SessionPhase]metrics.Counts { return apicache.CountSessions(api) }))
}

// whileLeading counts nothing unless this replica leads: another one has the same objects in its caches, and no queues.
func whileLeading[M ~map[K]V, K comparable, V any](mgr ctrl.Manager, count func() M) func() M {
	return func() M {
		select {
		case <-mgr.Elected():
			return count()
		default:
			return nil
		}
	}
}
