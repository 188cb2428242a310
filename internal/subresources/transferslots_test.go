package subresources

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestTransfersOfASessionAUserANamespaceAndAllAreBounded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		bound int
		enter func(s *transferSlots, i int) (func(), error)
	}{
		"a session": {maxTransfersPerSession, func(s *transferSlots, _ int) (func(), error) {
			return s.enterSession(types.NamespacedName{Namespace: "ns", Name: "session"})
		}},
		"a user":      {maxTransfersPerUser, func(s *transferSlots, i int) (func(), error) { return s.enter("user", fmt.Sprint(i)) }},
		"a namespace": {maxTransfersPerNamespace, func(s *transferSlots, i int) (func(), error) { return s.enter(fmt.Sprint(i), "ns") }},
		"all":         {maxTransfers, func(s *transferSlots, i int) (func(), error) { return s.enter(fmt.Sprint(i), fmt.Sprint(i)) }},
	} {
		s := newTransferSlots()
		var leave []func()
		for i := range tc.bound {
			l, err := tc.enter(s, i)
			if err != nil {
				t.Fatalf("%s: %d: %v", name, i, err)
			}
			leave = append(leave, l)
		}
		if _, err := tc.enter(s, tc.bound); err == nil {
			t.Errorf("%s: one more is let in", name)
		}
		for _, l := range leave {
			l()
		}
		if s.total != 0 || len(s.byUser)+len(s.byNamespace)+len(s.bySession) != 0 {
			t.Errorf("%s: left are %+v", name, s)
		}
	}
}
