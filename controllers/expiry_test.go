package controllers

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

func TestCallsAreWokenWhenTheirTimeHasCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wakes := make(chan string, 100)
		e := NewExpiry(clock.RealClock{}, func(call types.NamespacedName) { wakes <- call.Name })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Start(ctx) }()
		now := time.Now()
		for _, n := range []int{30, 10, 20, 10, 10} {
			e.Add(types.NamespacedName{Namespace: "ns", Name: fmt.Sprint("after-", n)}, now.Add(time.Duration(n)*time.Second))
		}
		e.Add(types.NamespacedName{Namespace: "ns", Name: "past"}, now.Add(-time.Hour))
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
		if len(e.due)+len(e.seconds) != 0 {
			t.Errorf("left: %v, %v", e.due, e.seconds)
		}
	})
}
