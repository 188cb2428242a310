package executionenvironment

import (
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

// Reconciler looks after environments. Make it with NewReconciler.
type Reconciler struct {
	Options
	// backoffs holds a *backoff for each environment. After a restart it is empty: a pod that can't start is tried again at once, runners
	// have the time that all have to dial in, and the counts are written at once.
	backoffs sync.Map
}

// Options are what the reconciler needs.
type Options struct {
	Client   client.Client
	Objects  apicache.Reader
	Clock    clock.PassiveClock
	Events   events.EventRecorder
	Policies *apicache.Compiled
	Hub      *dispatch.Hub
	Hosts    *host.Registry
	// Nodes says what the nodes of an environment's runners can hold.
	Nodes    *host.Nodes
	Identity *dispatch.Identity
	Runtime  jobspec.Runtime
	// Queue is told when another number of calls may run at the same time.
	Queue *queue.Queues
	// Calls has a call looked at whose runner has come back without it.
	Calls *trigger.Trigger
	// OperatorNamespace and OperatorPort are where the NetworkPolicies let runners go.
	OperatorNamespace string
	OperatorPort      int32
}

// NewReconciler makes one.
func NewReconciler(o Options) *Reconciler { return &Reconciler{Options: o} }
