package subresources

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestTransfersOfASessionAUserAndAllAreBounded(t *testing.T) {
	t.Parallel()
	session := func(i int) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: fmt.Sprint(i)} }
	for name, tc := range map[string]struct {
		bound   int
		user    func(i int) string
		session func(i int) types.NamespacedName
	}{
		"a session": {maxTransfersPerSession, func(i int) string { return fmt.Sprint(i) }, func(int) types.NamespacedName { return session(0) }},
		"a user":    {maxTransfersPerUser, func(int) string { return "user" }, session},
		"all":       {maxTransfers, func(i int) string { return fmt.Sprint(i) }, session},
	} {
		s := newTransferSlots()
		var leave []func()
		for i := range tc.bound {
			l, err := s.enter(tc.user(i), tc.session(i))
			if err != nil {
				t.Fatalf("%s: %d: %v", name, i, err)
			}
			leave = append(leave, l)
		}
		if _, err := s.enter(tc.user(tc.bound), tc.session(tc.bound)); err == nil {
			t.Errorf("%s: one more is let in", name)
		}
		for _, l := range leave {
			l()
		}
		if s.total != 0 || len(s.byUser)+len(s.bySession) != 0 {
			t.Errorf("%s: left are %+v", name, s)
		}
	}
}
