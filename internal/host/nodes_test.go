package host

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

func TestNodesCountForAWhile(t *testing.T) {
	t.Parallel()
	env, other, start := types.NamespacedName{Name: "env"}, types.NamespacedName{Name: "other"}, time.Unix(1000, 0)
	n := NewNodes()
	add := func(node string, abi int, after time.Duration) {
		n.Add(env, wire.Hello{Node: node, Support: &rules.Support{LandlockABI: abi}}, start.Add(after))
	}
	add("b", 1, 0)
	add("a", 3, time.Minute)
	add("b", 2, 2*time.Minute)
	n.Add(env, wire.Hello{Node: "c"}, start)
	if diff := cmp.Diff([]string{"a 3", "b 2"}, described(n.Of(env, start.Add(2*time.Minute)))); diff != "" {
		t.Error("the last word of each node:", diff)
	}
	if diff := cmp.Diff([]string{"b 2"}, described(n.Of(env, start.Add(6*time.Minute)))); diff != "" {
		t.Error("a node stays that nobody said anything about:", diff)
	}
	if got := n.Of(other, start); len(got) != 0 {
		t.Errorf("another environment has %+v", got)
	}
	n.Forget(env)
	if got := n.Of(env, start); len(got) != 0 {
		t.Errorf("%+v is left", got)
	}
}

func TestNodesAreBounded(t *testing.T) {
	t.Parallel()
	env, start := types.NamespacedName{Name: "env"}, time.Unix(1000, 0)
	n := NewNodes()
	for i := range 300 {
		n.Add(env, wire.Hello{Node: fmt.Sprintf("node-%03d", i), Support: &rules.Support{}}, start.Add(time.Duration(i)))
	}
	nodes := n.Of(env, start)
	if len(nodes) != 256 || nodes[0].Name != "node-044" || nodes[255].Name != "node-299" {
		t.Errorf("%d nodes count, the first is %s", len(nodes), nodes[0].Name)
	}
}

func TestEnvironmentsThatNobodyForgetsAreBounded(t *testing.T) {
	t.Parallel()
	n := NewNodes()
	for i := range maxEnvironments + 10 {
		n.Add(types.NamespacedName{Name: fmt.Sprint(i)}, wire.Hello{Node: "node", Support: &rules.Support{}}, time.Unix(1000, 0))
	}
	if len(n.all) != 10 {
		t.Errorf("%d environments are remembered", len(n.all))
	}
}

func described(nodes []Node) []string {
	var all []string
	for _, node := range nodes {
		all = append(all, fmt.Sprint(node.Name, " ", node.Support.LandlockABI))
	}
	return all
}
