package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/controllers"
	stored "toolcall.dev/operator/controllers/output"
	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/store"
	"toolcall.dev/operator/internal/trigger"
)

// outputStore is the store of this replica, and what fills it while the replica leads. Without a store both are nil.
type outputStore struct {
	store   *store.Store
	outputs *stored.Outputs
}

// openOutputStore opens the store, which asks nobody anything yet: the operator starts without it.
func openOutputStore(ctx context.Context, o *Options, memory *controllers.Memory, log logr.Logger) (*outputStore, error) {
	if o.OutputStore == "" {
		return &outputStore{}, nil
	}
	location, err := store.ParseLocation(o.OutputStore)
	if err != nil {
		return nil, fmt.Errorf("--output-store: %w", err)
	}
	kept, err := store.Open(ctx, location, tellOfFailures(log))
	if err != nil {
		return nil, err
	}
	outputs := stored.NewOutputs(kept, memory.Hub, stored.GrowthPause, func(call types.NamespacedName) {
		memory.Calls.Enqueue(call, trigger.PriorityResult)
		memory.Stored.Enqueue(call, 0)
	}, log)
	return &outputStore{store: kept, outputs: outputs}, nil
}

// tellOfFailures counts what the store fails at, and logs one failure of each kind a minute: there can be many.
func tellOfFailures(log logr.Logger) func(metrics.StoreOperation, error) {
	logs := map[metrics.StoreOperation]*rate.Sometimes{metrics.StoreWrite: {Interval: time.Minute}, metrics.StoreRead: {Interval: time.Minute}}
	return func(operation metrics.StoreOperation, err error) {
		metrics.CountStoreError(operation)
		logs[operation].Do(func() { log.Error(err, "The output store fails", "operation", operation) })
	}
}

// sources are those of ended calls.
func (s *outputStore) sources() []output.Source {
	if s.store == nil {
		return nil
	}
	return []output.Source{s.store}
}

// close ends what fills the store, then the store.
func (s *outputStore) close() {
	if s.store == nil {
		return
	}
	s.outputs.Close()
	_ = s.store.Close()
}
