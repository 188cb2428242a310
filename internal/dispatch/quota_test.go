package dispatch

import (
	"fmt"
	"testing"
)

func TestRunnersAreBoundedByAddressNamespaceAndInAll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source    func(i int) int
		namespace func(i int) string
		most      int
	}{
		"one address":   {func(int) int { return 1 }, func(i int) string { return fmt.Sprint(i) }, maxRunnersPerSource},
		"one namespace": {func(i int) int { return i }, func(int) string { return "ns" }, maxRunnersPerNamespace},
		"all different": {func(i int) int { return i }, func(i int) string { return fmt.Sprint(i) }, maxRunners},
	} {
		q := newQuota()
		var releases []func()
		for i := range maxRunners + 10 {
			release, err := q.take(addr(c.source(i)), c.namespace(i))
			if err == nil {
				releases = append(releases, release)
			}
		}
		if len(releases) != c.most {
			t.Errorf("%s: %d runners, want %d", name, len(releases), c.most)
		}
		if c.most < maxRunners {
			if _, err := q.take(addr(1<<20), "another"); err != nil {
				t.Errorf("%s: keeps others out: %v", name, err)
			}
			q.release(addr(1<<20), "another")
		}
		for _, release := range releases {
			release()
			release()
		}
		if q.total != 0 || len(q.sources) != 0 || len(q.namespaces) != 0 {
			t.Errorf("%s: %d are left, %d addresses, %d namespaces", name, q.total, len(q.sources), len(q.namespaces))
		}
	}
}
