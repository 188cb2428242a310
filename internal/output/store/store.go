// Package store keeps the output of calls in object storage, for longer than their pods live.
//
// A stream is parts and an index. Parts go up while the command runs. The index is written last, so a stream without one
// isn't there to read. Objects are named by the call's UID and the stream, a part also by its place in the stream, so an
// object never gets other content, whoever writes it and however often.
//
// What is stored is checked when it is read: sizes, places and hashes, of the index too. Wrong content is a *CorruptError.
//
// The store never decides about a call, and no call waits for it. Memory is bounded over all streams.
package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"gocloud.dev/blob"
	"golang.org/x/sync/semaphore"

	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/output"
)

const (
	// partBytes is the size of each part but the last one of a range.
	partBytes = 1 << 20
	// MaxLimit is the most that is kept of a stream.
	MaxLimit = 1 << 30
	// patience is for how long the end of a stream is tried to be stored.
	patience = 5 * time.Minute
	// writesAtOnce and readsAtOnce bound the parts that are in memory on their way up and down.
	writesAtOnce = 8
	readsAtOnce  = 8
	// partsAtOnce is how many parts are read from pods or wait to be written, and partsOfNamespace how many of them one namespace gets:
	// its slow pods don't stop others' output.
	partsAtOnce      = 32
	partsOfNamespace = 2
	// cachedParts is how many parts stay in memory for the next reader.
	cachedParts = 16
)

// State says how much of a stream is stored.
type State string

// The states of a stream. The last three are final.
const (
	// Growing: the process may write more.
	Growing State = "Growing"
	// Storing: the process has ended, the last bytes are on their way.
	Storing State = "Storing"
	// Complete: every byte is stored.
	Complete State = "Complete"
	// Shortened: the first and the last part are stored, and the middle wasn't kept.
	Shortened State = "Shortened"
	// Lost: something that should have been kept isn't stored.
	Lost State = "Lost"
)

// Store keeps streams in a bucket.
type Store struct {
	location *Location
	bucket   *blob.Bucket
	cache    *partCache
	// parts are in memory, writes are on their way.
	parts  *fair.Turns[string]
	writes *semaphore.Weighted
	// tell is told what the service fails at when it writes and reads; the other operations return it.
	tell func(metrics.StoreOperation, error)
	// Tests shorten these.
	attempt  time.Duration
	pageSize int

	mu      sync.Mutex
	closed  bool
	writers map[output.Key]*Writer
	running sync.WaitGroup
}

// Open returns the store at a location. It doesn't ask the storage service anything yet, so that the operator starts
// without it. tell is told each failure to write or read; it returns at once. It may be nil.
func Open(ctx context.Context, location *Location, tell func(metrics.StoreOperation, error)) (*Store, error) {
	b, err := location.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the output store: %w", err)
	}
	if tell == nil {
		tell = func(metrics.StoreOperation, error) {}
	}
	return &Store{
		location: location, bucket: b, cache: newPartCache(cachedParts, readsAtOnce), parts: fair.NewTurns[string](partsAtOnce, partsOfNamespace),
		writes: semaphore.NewWeighted(writesAtOnce), tell: tell,
		attempt: 30 * time.Second, pageSize: 1000, writers: map[output.Key]*Writer{},
	}, nil
}

// Close ends all writers where they are, and waits for them. A second time it does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	for _, w := range s.writers {
		w.cancel(errClosed)
	}
	s.mu.Unlock()
	s.running.Wait()
	s.cache.close()
	return s.bucket.Close()
}
