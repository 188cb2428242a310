package dispatch

import (
	"fmt"
	"testing"
)

func TestRunnersAreBoundedByAddressNamespaceAndInAll(t *testing.T) {
	t.Parallel()
	const most, perSource, perNamespace = 1000, 100, 400
	for name, c := range map[string]struct {
		source    func(i int) int
		namespace func(i int) string
		most      int
	}{
		"one address":   {func(int) int { return 1 }, func(i int) string { return fmt.Sprint(i) }, perSource},
		"one namespace": {func(i int) int { return i }, func(int) string { return "ns" }, perNamespace},
		"all different": {func(i int) int { return i }, func(i int) string { return fmt.Sprint(i) }, most},
	} {
		q := newQuota(most, perSource, perNamespace)
		var releases []func()
		for i := range most + 10 {
			release, err := q.take(addr(c.source(i)), c.namespace(i), func() { t.Errorf("%s: one gave way to another like it", name) })
			if err == nil {
				releases = append(releases, release)
			}
		}
		if len(releases) != c.most {
			t.Errorf("%s: %d runners, want %d", name, len(releases), c.most)
		}
		if c.most < most {
			release, err := q.take(addr(1<<20), "another", func() {})
			if err != nil {
				t.Fatalf("%s: keeps others out: %v", name, err)
			}
			release()
		}
		for _, release := range releases {
			release()
			release()
		}
		if q.all.count != 0 || len(q.sources) != 0 || len(q.all.namespaces) != 0 {
			t.Errorf("%s: %d are left, %d addresses, %d namespaces", name, q.all.count, len(q.sources), len(q.all.namespaces))
		}
	}
}

// taken counts connections by namespace, as those that hold them see it.
type taken map[string]int

func (n taken) take(q *quota, source int, namespace string) bool {
	_, err := q.take(addr(source), namespace, func() { n[namespace]-- })
	if err == nil {
		n[namespace]++
	}
	return err == nil
}

func TestTheNamespaceThatHoldsMostGivesWay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		most, perSource int
		source          func(i int) int
	}{
		"of all":         {800, 800, func(i int) int { return i }},
		"of one address": {8000, 800, func(int) int { return 1 }},
	} {
		q, n := newQuota(c.most, c.perSource, 600), taken{}
		// Two namespaces hold all that there is.
		for i := range 1600 {
			n.take(q, c.source(i), []string{"greedy", "greedier"}[i%2])
		}
		for i := range 1600 {
			if got := n.take(q, c.source(2000+i), "modest"); got != (i < 266) {
				t.Fatalf("%s: connection %d of the third namespace was taken: %t", name, i, got)
			}
		}
		if !n.take(q, c.source(4000), "last") {
			t.Errorf("%s: the first connection of a namespace found no room", name)
		}
		for namespace, count := range n {
			if namespace != "last" && (count < 265 || count > 268) || q.all.of(namespace) != count {
				t.Errorf("%s: %s has %d, counted as %d", name, namespace, count, q.all.of(namespace))
			}
		}
		if q.all.count != 800 {
			t.Errorf("%s: %d are counted", name, q.all.count)
		}
	}
}

func TestTheNewestConnectionGivesWay(t *testing.T) {
	t.Parallel()
	q := newQuota(3, 3, 3)
	var evicted []int
	for i := range 3 {
		if _, err := q.take(addr(i), "ns", func() { evicted = append(evicted, i) }); err != nil {
			t.Fatal(err)
		}
	}
	release, err := q.take(addr(9), "other", func() {})
	if err != nil || len(evicted) != 1 || evicted[0] != 2 {
		t.Fatalf("%v gave way, %v", evicted, err)
	}
	if _, err := q.take(addr(9), "other", func() {}); err == nil {
		t.Error("a namespace that would hold as many was made room for")
	}
	release()
	release()
	if q.all.count != 2 {
		t.Errorf("%d are counted", q.all.count)
	}
}
