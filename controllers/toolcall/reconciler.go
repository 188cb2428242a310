package toolcall

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/controllers/output"
	"toolcall.dev/operator/controllers/retention"
	"toolcall.dev/operator/controllers/toolsession"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/snapshot"
	"toolcall.dev/operator/internal/tracing"
	"toolcall.dev/operator/internal/trigger"
)

// Reconciler brings calls to their end. Make it with NewReconciler. Its own methods are the handlers of the stages; what they read, how
// they decide, and what carries their effects out, are types of their own.
type Reconciler struct {
	*Options
	watches
	observer
	decider
	applier
}

// watches has calls looked at when something changes that concerns them.
type watches struct {
	*Options
	finished finishedCalls
}

// observer reads what a pass looks at. It changes nothing.
type observer struct {
	*Options
	finished finishedCalls
}

// decider decides about calls.
type decider struct {
	*Options
	// snapshots reads what decisions depend on.
	snapshots *snapshot.Reader
}

// applier carries effects out: nothing else writes, queues or tells.
type applier struct {
	*Options
	// finished are the calls that ended a moment ago; starts bounds the creations under way, changes the changes of Jobs,
	// eventLimits the Events, recordLimits the records in the log.
	finished                  finishedCalls
	starts, changes           *fair.Shares
	eventLimits, recordLimits *rateLimits
}

// Options are what the reconciler needs.
type Options struct {
	Client  client.Client
	Objects apicache.Reader
	Clock   clock.PassiveClock
	Events  events.EventRecorder
	// Policies keeps policies compiled.
	Policies *apicache.Compiled
	// Requesters vouches for the creators of calls, Reviews asks what they may use.
	Requesters *access.Requesters
	Reviews    *access.Reviews
	Identity   *dispatch.Identity
	Hub        *dispatch.Hub
	// Hosts holds the claims on waiting runners. Runtime goes into every pod.
	Hosts   *host.Registry
	Runtime jobspec.Runtime
	// Nodes learns what the node of each cold call's runner can hold.
	Nodes *host.Nodes
	// Queue holds calls back whose environment runs as many as it may, and refuses those of a requester who has too many pending.
	Queue *queue.Queues
	// Budgets counts what is in use of the ToolBudgets of each namespace.
	Budgets *queue.Ledger
	// Sessions looks up the sessions of calls, SessionQueue holds the order of their calls, Earlier those that an operator before
	// this one may have handed over. KeepSession has a session looked at.
	Sessions     *toolsession.Servings
	SessionQueue *queue.SessionQueue
	Earlier      *host.EarlierCalls
	KeepSession  func(types.NamespacedName)
	// Retention has finished calls deleted when their time is up.
	Retention *retention.Reconciler
	// Pools has an environment looked at whose waiting pod was taken.
	Pools *trigger.Trigger
	// Cluster knows the addresses that restricted calls are kept from; nil for none.
	Cluster Cluster
	// Outputs has output stored that is more than the status keeps; nil for none. LookAfterOutput has a call looked at that ended
	// before all was stored.
	Outputs         *output.Outputs
	LookAfterOutput func(types.NamespacedName)
	// Trace makes spans of finished calls; nil for none.
	Trace *tracing.Tracer
	// Wake has a call looked at whose share of the creations under way is free.
	Wake func(types.NamespacedName)
	// Concurrent is how many calls are reconciled at the same time.
	Concurrent int
}

// NewReconciler makes one.
func NewReconciler(o Options) *Reconciler {
	finished := newFinishedCalls(o.Clock)
	snapshots := snapshot.New(snapshot.Sources{
		Objects: o.Objects, Policies: o.Policies, Requesters: o.Requesters, Reviews: o.Reviews, Origins: o.Sessions,
	})
	return &Reconciler{
		Options: &o, watches: watches{&o, finished}, observer: observer{&o, finished}, decider: decider{&o, snapshots},
		applier: applier{
			Options: &o, finished: finished, eventLimits: newRateLimits(), recordLimits: newRateLimits(),
			starts: fair.NewShares(max(o.Concurrent/4, 1), o.Wake), changes: fair.NewShares(max(o.Concurrent*3/4, 1), o.Wake),
		},
	}
}
