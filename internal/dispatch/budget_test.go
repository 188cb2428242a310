package dispatch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

func TestResultsWaitForRoomInTheOrderTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newResultBudget(100, 100)
		release, err := b.acquire(t.Context(), "ns", 100)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		var all sync.WaitGroup
		for _, c := range []struct {
			name string
			n    int64
		}{{"large", 90}, {"small", 11}, {"next", 95}} {
			all.Go(func() {
				release, err := b.acquire(t.Context(), "ns", c.n)
				if err != nil {
					t.Error(err)
					return
				}
				got = append(got, c.name)
				release()
			})
			synctest.Wait()
		}
		if len(got) != 0 {
			t.Errorf("there was no room, and %v got some", got)
		}
		release()
		release() // Twice gives back no more.
		all.Wait()
		if !slices.Equal(got, []string{"large", "small", "next"}) {
			t.Errorf("served in the order %v", got)
		}
		if len(b.namespaces) != 0 || !b.total.TryAcquire(100) || b.total.TryAcquire(1) {
			t.Error("the budget is not what it was")
		}
	})
}

func TestOneNamespaceCannotTakeTheWholeBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newResultBudget(100, 25)
		hold, err := b.acquire(t.Context(), "greedy", 25)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for range 100 {
			waiting.Go(func() {
				if _, err := b.acquire(ctx, "greedy", 25); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait()
		for _, namespace := range []string{"a", "b", "c"} {
			release, err := b.acquire(t.Context(), namespace, 25)
			if err != nil {
				t.Fatal(err)
			}
			defer release()
		}
		cancel()
		waiting.Wait()
		hold()
		if len(b.namespaces) != 3 {
			t.Errorf("%d namespaces are remembered", len(b.namespaces))
		}
	})
}

func TestWhoStopsWaitingForTheWholeBudgetKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newResultBudget(10, 10)
		hold, err := b.acquire(t.Context(), "a", 10)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := b.acquire(ctx, "b", 10)
			ended <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		hold()
		release, err := b.acquire(t.Context(), "b", 10)
		if err != nil {
			t.Fatal(err)
		}
		release()
		if len(b.namespaces) != 0 {
			t.Errorf("%d namespaces are remembered", len(b.namespaces))
		}
	})
}

func TestTheBudgetHasRoomForTheLargestResult(t *testing.T) {
	t.Parallel()
	b := newResultBudgets()
	for _, version := range []int{1, 2} {
		release, err := b.acquire(t.Context(), "ns", largestResultOf(version))
		if err != nil {
			t.Fatal(err)
		}
		release()
	}
}
