package retention

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"toolcall.dev/operator/api/v1alpha1"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestCallsAreWokenWhenTheirTimeHasCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wakes := make(chan string, 100)
		s := NewSchedule(clock.RealClock{}, func(call types.NamespacedName) { wakes <- call.Name })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Start(ctx) }()
		now := time.Now()
		for _, n := range []int{30, 10, 20, 10, 10} {
			s.Add(types.NamespacedName{Namespace: "ns", Name: fmt.Sprint("after-", n)}, now.Add(time.Duration(n)*time.Second))
		}
		s.Add(types.NamespacedName{Namespace: "ns", Name: "past"}, now.Add(-time.Hour))
		for _, step := range []struct {
			until time.Duration
			want  []string
		}{
			{9 * time.Second, []string{"past"}},
			{12 * time.Second, []string{"after-10"}},
			{40 * time.Second, []string{"after-20", "after-30"}},
		} {
			time.Sleep(time.Until(now.Add(step.until)))
			synctest.Wait()
			var woken []string
			for len(wakes) > 0 {
				woken = append(woken, <-wakes)
			}
			if !slices.Equal(woken, step.want) {
				t.Errorf("until %s: woken %q, want %q", step.until, woken, step.want)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(s.due) != 0 {
			t.Errorf("left: %v", s.due)
		}
	})
}

func TestACallThatIsRemovedIsNotWoken(t *testing.T) {
	t.Parallel()
	s := NewSchedule(clock.RealClock{}, nil)
	gone, stays := types.NamespacedName{Namespace: "ns", Name: "gone"}, types.NamespacedName{Namespace: "ns", Name: "stays"}
	for _, call := range []types.NamespacedName{gone, stays} {
		s.Add(call, start)
	}
	s.addOfSession(&v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: gone.Namespace, Name: gone.Name},
		Spec:       v1alpha1.ToolCallSpec{SessionRef: &v1alpha1.SessionReference{Name: "session"}},
	}, start)
	s.Forget(gone, "")
	s.Forget(gone, "")
	if woken := s.take(start.Add(time.Minute)); !slices.Equal(woken, []types.NamespacedName{stays}) {
		t.Errorf("woken: %v", woken)
	}
}

// No call is woken before its time, each once, and within a second after it.
func TestNoCallIsWokenEarlyOrForgotten(t *testing.T) {
	t.Parallel()
	s := NewSchedule(clock.RealClock{}, nil)
	due := map[string]time.Time{}
	for i := range 1000 {
		name := fmt.Sprint("call-", i)
		due[name] = start.Add(time.Duration(i*i%600_011) * time.Millisecond)
		s.Add(types.NamespacedName{Namespace: "ns", Name: name}, due[name])
	}
	for now := start; len(due) > 0 && now.Before(start.Add(time.Hour)); now = now.Add(500 * time.Millisecond) {
		for _, call := range s.take(now) {
			at, waits := due[call.Name]
			if !waits || at.After(now) || now.Sub(at) > 1500*time.Millisecond {
				t.Fatalf("%s, due at %s, is taken at %s: it waits: %t", call.Name, at, now, waits)
			}
			delete(due, call.Name)
		}
	}
	if len(due) != 0 || len(s.due) != 0 {
		t.Errorf("%d calls are not woken, %d are left", len(due), len(s.due))
	}
}
