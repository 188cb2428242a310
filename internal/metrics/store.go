package metrics

import "github.com/prometheus/client_golang/prometheus"

var (
	storeErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "toolcall_output_store_errors_total",
		Help: "What the output store failed at, by operation: store (an attempt to write a part, or a stream that is lost), read (an attempt to read, or damaged content), delete (the output of a call that is gone) or sweep.",
	}, []string{"operation"})
	storedStreams = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "toolcall_output_streams_total",
		Help: "Streams of finished calls that were more than the status keeps, and artifacts, by state: Complete, Shortened or Lost.",
	}, []string{"state"})
)

// StoreOperation is what the operator asks of the output store.
type StoreOperation string

// Operations of the output store.
const (
	StoreWrite  StoreOperation = "store"
	StoreRead   StoreOperation = "read"
	StoreDelete StoreOperation = "delete"
	StoreSweep  StoreOperation = "sweep"
)

// CountStoreError counts what the output store failed at.
func CountStoreError(operation StoreOperation) {
	storeErrors.WithLabelValues(string(operation)).Inc()
}

// CountStored counts a stream or an artifact whose state is final.
func CountStored(state string) {
	storedStreams.WithLabelValues(state).Inc()
}
