package metrics

import (
	"toolcall.dev/operator/api/v1alpha1"
)

var (
	storeErrors = counters("toolcall_output_store_errors_total", []string{"operation"},
		"What the output store failed at, by operation: store (an attempt to write a part, or a stream that is lost), read (an attempt to read, or damaged content), delete (the output of a call that is gone) or sweep.")
	storedStreams = kept(counters("toolcall_output_streams_total", withEnvironment("state"),
		"Streams of finished calls that were more than the status keeps, and artifacts, by environment and state: Complete, Shortened or Lost."))
	storedBytes = kept(counters("toolcall_output_stored_bytes_total", withEnvironment(),
		"Bytes of streams and artifacts of finished calls that the output store keeps, by environment."))
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

// CountStored counts a stream or an artifact of a call whose state is final, and of which the store keeps so many bytes.
func CountStored(namespace string, call *v1alpha1.ToolCallStatus, state string, bytes int64) {
	known.count(environmentOf(namespace, call.Environment), func(namespace, environment string) {
		storedStreams.WithLabelValues(namespace, environment, state).Inc()
		storedBytes.WithLabelValues(namespace, environment).Add(float64(bytes))
	})
}
