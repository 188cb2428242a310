package redact

// automaton is an Aho-Corasick automaton of all forms of all values. State 0 is the root.
type automaton struct {
	nodes []node
	root  [256]int32
	// branches has the children that don't follow their parent in nodes, by parent<<8 | byte. They are few: most nodes have
	// one child.
	branches map[uint64]int32
	forms    []form
}

type node struct {
	// fail is the state of the longest end of this one that is a beginning of a form too.
	fail, depth int32
	// out is the index of the longest form that ends here, plus one; 0 for none.
	out int32
	// own is the longest end of this state, or all of it, that can go on to be a form that isn't foreign.
	own int32
	// next is the byte that leads to the node that follows this one.
	next                         byte
	hasNext, hasBranches, hasOwn bool
}

// form is what is looked for of a value.
type form struct {
	value  int
	length int32
	// order is lower for a form that names a mark before others that are as long.
	order     int32
	isForeign bool
}

func newAutomaton() *automaton {
	return &automaton{nodes: make([]node, 1), branches: map[uint64]int32{}}
}

func (a *automaton) add(one form, text []byte) {
	state := int32(0)
	for _, b := range text {
		next := a.child(state, b)
		if next == 0 {
			next = a.addChild(state, b)
		}
		if !one.isForeign {
			a.nodes[state].hasOwn = true
		}
		state = next
	}
	if a.nodes[state].out == 0 {
		a.forms = append(a.forms, one)
		a.nodes[state].out = int32(len(a.forms))
	}
}

func (a *automaton) addChild(parent int32, b byte) int32 {
	next := int32(len(a.nodes))
	a.nodes = append(a.nodes, node{depth: a.nodes[parent].depth + 1})
	p := &a.nodes[parent]
	switch {
	case parent == 0:
		a.root[b] = next
	case next == parent+1:
		p.next, p.hasNext = b, true
	default:
		p.hasBranches = true
		a.branches[uint64(parent)<<8|uint64(b)] = next
	}
	return next
}

// child returns 0 if there is none.
func (a *automaton) child(state int32, b byte) int32 {
	if state == 0 {
		return a.root[b]
	}
	n := &a.nodes[state]
	if n.hasNext && n.next == b {
		return state + 1
	}
	if n.hasBranches {
		return a.branches[uint64(state)<<8|uint64(b)]
	}
	return 0
}

func (a *automaton) step(state int32, b byte) int32 {
	for {
		if next := a.child(state, b); next != 0 || state == 0 {
			return next
		}
		state = a.nodes[state].fail
	}
}

// depth is how long the longest end of the text is that can go on to be a form. What has ended can't.
func (a *automaton) depth(state int32) int32 {
	for state != 0 && !a.nodes[state].hasNext && !a.nodes[state].hasBranches {
		state = a.nodes[state].fail
	}
	return a.nodes[state].depth
}

// ownDepth is depth for the forms that aren't foreign.
func (a *automaton) ownDepth(state int32) int32 { return a.nodes[a.nodes[state].own].depth }

type edge struct {
	parent, child int32
	b             byte
}

// link sets the fail states. It is for after the last add.
func (a *automaton) link() {
	for _, e := range a.byDepth(a.edges()) {
		n := &a.nodes[e.child]
		if e.parent != 0 {
			n.fail = a.step(a.nodes[e.parent].fail, e.b)
		}
		if n.out == 0 {
			n.out = a.nodes[n.fail].out
		}
		if n.own = e.child; !n.hasOwn {
			n.own = a.nodes[n.fail].own
		}
	}
}

func (a *automaton) edges() []edge {
	edges := make([]edge, 0, len(a.nodes))
	for b, child := range a.root {
		if child != 0 {
			edges = append(edges, edge{child: child, b: byte(b)})
		}
	}
	for i := range a.nodes {
		if n := &a.nodes[i]; n.hasNext {
			edges = append(edges, edge{parent: int32(i), child: int32(i) + 1, b: n.next})
		}
	}
	for key, child := range a.branches {
		edges = append(edges, edge{parent: int32(key >> 8), child: child, b: byte(key)})
	}
	return edges
}

// byDepth sorts edges by counting: there may be many.
func (a *automaton) byDepth(edges []edge) []edge {
	deepest := int32(0)
	for i := range a.nodes {
		deepest = max(deepest, a.nodes[i].depth)
	}
	starts := make([]int, deepest+2)
	for _, e := range edges {
		starts[a.nodes[e.child].depth+1]++
	}
	for i := range deepest {
		starts[i+1] += starts[i]
	}
	sorted := make([]edge, len(edges))
	for _, e := range edges {
		depth := a.nodes[e.child].depth
		sorted[starts[depth]] = e
		starts[depth]++
	}
	return sorted
}
