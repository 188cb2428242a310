package toolsession

import (
	"context"
	"sync"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/trigger"
)

// Reconciler keeps sessions. Make it with NewReconciler. Its own methods are the handlers of the stages; what they read, and what
// carries their effects out, are types of their own.
type Reconciler struct {
	*Options
	watches
	observer
	applier
	// entering has the environments that a session is being let into, while a pass does that.
	entering sync.Map
}

// watches has sessions looked at when something changes that concerns them.
type watches struct{ *Options }

// observer reads what a pass looks at. It changes nothing.
type observer struct{ *Options }

// applier carries effects out.
type applier struct{ *Options }

// Options are what the reconciler needs.
type Options struct {
	Client  client.Client
	Objects apicache.Reader
	Clock   clock.PassiveClock
	Events  events.EventRecorder
	// Policies keeps policies compiled.
	Policies *apicache.Compiled
	Identity *dispatch.Identity
	Runtime  jobspec.Runtime
	Hub      *dispatch.Hub
	// Hosts holds the claims on waiting runners.
	Hosts *host.Registry
	// Nodes is what is known of the environments' nodes and pods.
	Nodes *host.Nodes
	// Earlier are the calls that an operator before this one may have handed over.
	Earlier *host.EarlierCalls
	// SessionQueue has the calls looked at that wait for a session, when that begins to take calls.
	SessionQueue *queue.SessionQueue
	// Budgets counts what is in use of the ToolBudgets of each namespace; SeedBudgets makes those of one known that has some.
	Budgets     *queue.Ledger
	SeedBudgets func(ctx context.Context, namespace string) error
	// Pools has an environment looked at whose waiting pod was taken.
	Pools *trigger.Trigger
	// Concurrent is how many sessions are reconciled at the same time.
	Concurrent int
}

// NewReconciler makes one.
func NewReconciler(o Options) *Reconciler {
	return &Reconciler{Options: &o, watches: watches{&o}, observer: observer{&o}, applier: applier{&o}}
}
