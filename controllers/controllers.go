// Package controllers reconciles the four kinds: a call towards its end, an environment's and a policy's
// status towards what is true.
//
// A reconciler gathers what is there (objects from the cache, the runner's session), decides by pure
// functions of that, and acts: it writes the API at most once per pass for each object, and only then does
// what follows from the write (hand a call to its runner, acknowledge a result, send an Event). It keeps
// nothing that it couldn't observe again, so that it may be killed at any point.
//
// It must not read Secrets, run anything itself, or connect to a pod: runners connect to the operator.
package controllers

import (
	"errors"
	"fmt"

	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/tracing"
)

// EventSource is the reporting controller of the project's Events.
const EventSource = "toolcall.dev/operator"

// Options are what the reconcilers need besides the manager.
type Options struct {
	// Hub holds the sessions of connected runners.
	Hub *dispatch.Hub
	// Identity makes and checks tokens and seals.
	Identity *dispatch.Identity
	// Runtime goes into every pod.
	Runtime jobspec.Runtime
	// Clock tells the API server's time, which the times in objects are compared with.
	Clock clock.PassiveClock
	// Signals wakes calls whose session has something new, Pools environments with a waiting runner.
	Signals, Pools *Signals
	// Trace makes spans of finished calls; nil for none.
	Trace *tracing.Tracer
	// ConcurrentCalls is how many calls are reconciled at the same time.
	ConcurrentCalls int
	// Operator is where runners find the operator.
	Operator OperatorAddress
	// Authorizer answers SubjectAccessReviews.
	Authorizer authorizationv1client.SubjectAccessReviewInterface
}

// Setup registers every controller of the operator: calls, warm pools, environments, policies. It is the first thing to
// read here.
func Setup(mgr ctrl.Manager, o Options) error {
	if err := SetupCache(mgr.GetCache()); err != nil {
		return fmt.Errorf("set up the cache: %w", err)
	}
	shared := Shared{
		Client:   mgr.GetClient(),
		Live:     mgr.GetAPIReader(),
		Clock:    o.Clock,
		Events:   mgr.GetEventRecorder(EventSource),
		Policies: NewPolicyCache(),
	}
	queues := queue.New(o.Signals.Wake)
	calls := &ToolCallReconciler{
		Shared:   shared,
		Hub:      o.Hub,
		Identity: o.Identity,
		Runtime:  o.Runtime,
		Access:   NewAccess(o.Authorizer, shared.Clock),
		Callers:  &Callers{Reader: mgr.GetClient()},
		Pools:    o.Pools,
		Trace:    o.Trace,
		Turns:    queues,
		Expiry:   NewExpiry(o.Clock, o.Signals.Wake),
	}
	watching, err := client.NewWithWatch(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("make the client that learns which calls have ended: %w", err)
	}
	if err := errors.Join(mgr.Add(calls.Expiry), mgr.Add(&learner{calls, watching})); err != nil {
		return fmt.Errorf("add the expiry of finished calls: %w", err)
	}
	metrics.RegisterCallsInFlight(func() int { return countInFlight(shared.Client) })
	metrics.RegisterCallsQueued(func() int { _, waiting := queues.Count(); return waiting })
	state := NewPoolState()
	pools := &WarmPoolReconciler{Shared: shared, Hub: o.Hub, Identity: o.Identity, Runtime: o.Runtime, State: state}
	environments := &ExecutionEnvironmentReconciler{Shared: shared, Operator: o.Operator, Pools: state, Hub: o.Hub, Turns: queues}
	policies := &ExecutionPolicyReconciler{Shared: shared}
	for name, err := range map[string]error{
		"ToolCall":             calls.SetupWithManager(mgr, o.Signals, o.ConcurrentCalls),
		"ExecutionEnvironment": environments.SetupWithManager(mgr),
		"warm pool":            pools.SetupWithManager(mgr, o.Pools),
		"ExecutionPolicy":      policies.SetupWithManager(mgr),
	} {
		if err != nil {
			return fmt.Errorf("set up the %s controller: %w", name, err)
		}
	}
	return nil
}
