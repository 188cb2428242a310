package dispatch

import "testing"

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
