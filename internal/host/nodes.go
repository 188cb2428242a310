package host

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

const (
	// nodeMemory is for how long a node counts whose runners say nothing more.
	nodeMemory = 5 * time.Minute
	// maxNodes bounds the nodes of one environment, whose names their runners say; the one not heard of for longest goes.
	maxNodes = 256
)

// maxEnvironments bounds the environments that something is known of: nobody may look after some any more.
const maxEnvironments = 10000

// Nodes holds what nodes give the runners of each environment for holding rules, as the runners said when they
// connected, what calls found out about the image's programs, and why the last runner didn't start. Its methods may be called at the
// same time.
//
// After a restart it is empty: the environments' status says what was found before, until a runner connects.
type Nodes struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*facts
}

// facts are what is known of one environment.
type facts struct {
	nodes map[string]Node
	// problem is why no runner has started since; nil for none.
	problem *Problem
	// applets are by the shell or interpreter that the environment gives a call; empty for none.
	applets map[string]applets
}

// Node is what a node gives.
type Node struct {
	Name    string
	Support rules.Support
	// Until is when it stops to count.
	Until time.Time
}

// NewNodes makes an empty one.
func NewNodes() *Nodes { return &Nodes{all: map[types.NamespacedName]*facts{}} }

// of needs the lock. With isKept, what is added is kept.
func (n *Nodes) of(env types.NamespacedName, isKept bool) *facts {
	known := n.all[env]
	if known == nil {
		known = &facts{nodes: map[string]Node{}, applets: map[string]applets{}}
		if isKept {
			if len(n.all) >= maxEnvironments {
				clear(n.all)
			}
			n.all[env] = known
		}
	}
	return known
}

// SetProblem keeps why a pod of an environment can't start, if that is the environment's: its image, or what its pods refer to.
func (n *Nodes) SetProblem(env types.NamespacedName, why *Problem) (kept bool) {
	if !IsEnvironments(why.Reason) {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of(env, true).problem = why
	return true
}

// IsEnvironments says that with a problem of that reason, no call of the environment starts.
func IsEnvironments(reason string) bool {
	return reason == v1alpha1.ReasonImagePullFailed || reason == v1alpha1.ReasonInvalidEnvironment
}

// Problem is why the last pod of an environment couldn't start; nil when none is known, or one has started since.
func (n *Nodes) Problem(env types.NamespacedName) *Problem {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.of(env, false).problem
}

// Add takes in what a runner of an environment said. What its node gave before counts no more.
func (n *Nodes) Add(env types.NamespacedName, hello wire.Hello, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.of(env, hello.Support != nil)
	known.problem = nil
	if hello.Support == nil {
		return
	}
	known.nodes[hello.Node] = Node{hello.Node, *hello.Support, now.Add(nodeMemory)}
	if len(known.nodes) > maxNodes {
		oldest := slices.MinFunc(slices.Collect(maps.Values(known.nodes)), func(a, b Node) int { return a.Until.Compare(b.Until) })
		delete(known.nodes, oldest.Name)
	}
}

// Of returns the nodes that count for an environment, by name.
func (n *Nodes) Of(env types.NamespacedName, now time.Time) []Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	nodes := n.of(env, false).nodes
	maps.DeleteFunc(nodes, func(_ string, node Node) bool { return !now.Before(node.Until) })
	return slices.SortedFunc(maps.Values(nodes), func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
}

// Forget drops what is known for an environment, which is gone or has changed.
func (n *Nodes) Forget(env types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.all, env)
}
