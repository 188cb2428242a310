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
	}
}
