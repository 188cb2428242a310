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

// Nodes holds what nodes give the runners of each environment for holding rules, as the runners said when they
// connected, what calls found out about the image's programs, and why the last runner didn't start. Its methods may be called at the same time.
//
// After a restart it is empty: the environments' status says what was found before, until a runner connects.
type Nodes struct {
	mu  sync.Mutex
	all map[types.NamespacedName]map[string]Node
	// problems are those of environments of which no runner has started since.
	problems map[types.NamespacedName]Problem
	// applets are by the shell or interpreter that the environment gives a call; empty for none.
	applets map[types.NamespacedName]map[string]applets
}

// Node is what a node gives.
type Node struct {
	Name    string
	Support rules.Support
	// Until is when it stops to count.
	Until time.Time
}

// NewNodes makes an empty one.
func NewNodes() *Nodes {
	return &Nodes{
		all: map[types.NamespacedName]map[string]Node{}, problems: map[types.NamespacedName]Problem{},
		applets: map[types.NamespacedName]map[string]applets{},
	}
}

// maxProblems bounds the problems of environments that nobody may look after any more.
const maxProblems = 10000

// SetProblem keeps why a pod of an environment can't start, if that is the environment's: its image, or what its pods refer to.
func (n *Nodes) SetProblem(env types.NamespacedName, why *Problem) (kept bool) {
	if !IsEnvironments(why.Reason) {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.problems) >= maxProblems {
		clear(n.problems)
	}
	n.problems[env] = *why
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
	if why, known := n.problems[env]; known {
		return &why
	}
	return nil
}

// Add takes in what a runner of an environment said. What its node gave before counts no more.
func (n *Nodes) Add(env types.NamespacedName, hello wire.Hello, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.problems, env)
	if hello.Support == nil {
		return
	}
	nodes := n.all[env]
	if nodes == nil {
		// A call may have its runner after its environment is gone.
		maps.DeleteFunc(n.all, func(_ types.NamespacedName, nodes map[string]Node) bool { return len(current(nodes, now)) == 0 })
		nodes = map[string]Node{}
		n.all[env] = nodes
	}
	nodes[hello.Node] = Node{hello.Node, *hello.Support, now.Add(nodeMemory)}
	if len(nodes) > maxNodes {
		oldest := slices.MinFunc(slices.Collect(maps.Values(nodes)), func(a, b Node) int { return a.Until.Compare(b.Until) })
		delete(nodes, oldest.Name)
	}
}

// Of returns the nodes that count for an environment, by name.
func (n *Nodes) Of(env types.NamespacedName, now time.Time) []Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	nodes := current(n.all[env], now)
	return slices.SortedFunc(maps.Values(nodes), func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
}

// current drops the nodes that count no more.
func current(nodes map[string]Node, now time.Time) map[string]Node {
	maps.DeleteFunc(nodes, func(_ string, node Node) bool { return !now.Before(node.Until) })
	return nodes
}

// Forget drops what is known for an environment, which is gone or has changed.
func (n *Nodes) Forget(env types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.all, env)
	delete(n.problems, env)
	delete(n.applets, env)
}
