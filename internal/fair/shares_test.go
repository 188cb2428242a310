package fair

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func callIn(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func TestANamespaceHasItsShareAndNoMore(t *testing.T) {
	t.Parallel()
	var woken []string
	s := NewShares(2, func(call types.NamespacedName) { woken = append(woken, call.Name) })
	one, ok := s.Acquire(callIn("a", "1"))
	two, again := s.Acquire(callIn("a", "2"))
	if _, third := s.Acquire(callIn("a", "3")); !ok || !again || third {
		t.Errorf("of two shares: %t, %t, %t", ok, again, third)
	}
	for _, name := range []string{"4", "3"} {
		if _, ok := s.Acquire(callIn("a", name)); ok {
			t.Errorf("call %s has a third share", name)
		}
	}
	other, ok := s.Acquire(callIn("b", "1"))
	if !ok {
		t.Error("another namespace has none")
	}
	one()
	if three, ok := s.Acquire(callIn("a", "3")); !ok {
		t.Error("a share that was given back isn't there")
	} else {
		three()
	}
	two()
	other()
	s.Forget(callIn("a", "4"))
	if diff := cmp.Diff([]string{"3", "4"}, woken); diff != "" {
		t.Errorf("calls are woken in another order: %s", diff)
	}
	if len(s.namespaces) != 0 {
		t.Errorf("left: %v", s.namespaces)
	}
}

// A call that was woken may have ended meanwhile, or found a waiting pod: its share is the next one's.
func TestAShareThatItsCallDoesNotTakeIsTheNextOnes(t *testing.T) {
	t.Parallel()
	var woken []string
	s := NewShares(2, func(call types.NamespacedName) { woken = append(woken, call.Name) })
	one, _ := s.Acquire(callIn("a", "1"))
	two, _ := s.Acquire(callIn("a", "2"))
	for _, name := range []string{"3", "4", "5", "6"} {
		s.Acquire(callIn("a", name))
	}
	s.Forget(callIn("a", "4"))
	one()
	s.Forget(callIn("a", "3"))
	two()
	if diff := cmp.Diff([]string{"3", "5", "6"}, woken); diff != "" {
		t.Errorf("calls are woken in another order: %s", diff)
	}
	for _, name := range []string{"6", "5", "5"} {
		s.Forget(callIn("a", name))
	}
	s.Forget(callIn("b", "1"))
	if len(s.namespaces) != 0 {
		t.Errorf("left: %v", s.namespaces)
	}
}

func TestSharesHoldForManyAtOnce(t *testing.T) {
	t.Parallel()
	const each = 3
	s := NewShares(each, func(types.NamespacedName) {})
	var mu sync.Mutex
	inUse, most := map[string]int{}, 0
	var all sync.WaitGroup
	for i := range 16 {
		namespace := fmt.Sprint(i % 2)
		all.Go(func() {
			for range 500 {
				release, ok := s.Acquire(callIn(namespace, fmt.Sprint(i)))
				if !ok {
					continue
				}
				mu.Lock()
				inUse[namespace]++
				most = max(most, inUse[namespace])
				mu.Unlock()
				mu.Lock()
				inUse[namespace]--
				mu.Unlock()
				release()
			}
		})
	}
	all.Wait()
	if most > each || most == 0 {
		t.Errorf("%d at once of %d", most, each)
	}
}
