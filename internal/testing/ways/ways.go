// Package ways has what nodes give a runner that holds calls, as tests force it: each is a kernel or a runtime that gives no more.
// A machine holds calls in as many ways as its own kernel allows.
package ways

import (
	"iter"

	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// Node is a kind of node.
type Node struct {
	Name string
	// weaken takes away what such a node doesn't give.
	weaken func(*rules.Support)
}

// Gives returns what the node gives where a machine gives this.
func (n Node) Gives(here rules.Support) rules.Support {
	n.weaken(&here)
	return here
}

func landlock(abi int) func(*rules.Support) {
	return func(s *rules.Support) { s.LandlockABI = min(s.LandlockABI, abi) }
}

// nodes are the kinds of nodes, from what gives most.
var nodes = []Node{
	{"as it is", func(*rules.Support) {}},
	{"Linux 6.2", landlock(rules.ABITruncate)},
	{"Linux 6.1", landlock(rules.ABIMoves)},
	{"Linux 5.15", landlock(1)},
	{"no Landlock", landlock(0)},
	{"no listener", func(s *rules.Support) { s.LandlockABI, s.Listener = 0, false }},
}

// Of returns the nodes that hold rules in a way of their own, with it, where a machine gives this.
func Of(here rules.Support, r *rules.Rules) iter.Seq2[Node, rules.Way] {
	return func(yield func(Node, rules.Way) bool) {
		seen := map[rules.Way]bool{}
		for _, node := range nodes {
			w, missing := node.Gives(here).WayFor(r)
			if missing != "" || seen[w] {
				continue
			}
			if seen[w] = true; !yield(node, w) {
				return
			}
		}
	}
}

// Named returns the node of a name; one that gives nothing if there is none.
func Named(name string) Node {
	for _, n := range nodes {
		if n.Name == name {
			return n
		}
	}
	return Node{name, func(s *rules.Support) { *s = rules.Support{} }}
}
