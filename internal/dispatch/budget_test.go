package dispatch

import (
	"testing"

	"toolcall.dev/operator/internal/dispatch/wire"
)

func TestTheBudgetHasRoomForTheLargestResult(t *testing.T) {
	t.Parallel()
	release, err := newResultBudgets().acquire(t.Context(), "ns", wire.MaxResult)
	if err != nil {
		t.Fatal(err)
	}
	release()
}
