package audit

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"

	"toolcall.dev/operator/internal/metrics"
)

const (
	// queueLength is how many records wait at most, some 350 MiB if each is as large as can be: groups and arguments take most of it.
	queueLength = 4096
	// retryPause is how long to wait before what couldn't be written is tried again.
	retryPause = time.Second
	// closeLimit is how long the last records may take when the operator stops.
	closeLimit = 2 * time.Second
)

// Queue writes records to a sink, in their order. Make it with NewQueue, and run it with Start.
type Queue struct {
	sink    Sink
	records chan Record
	log     logr.Logger
	// lose counts a record that there is no room for.
	lose func()
}

// NewQueue makes a queue for a sink, which nobody else may use.
func NewQueue(sink Sink, log logr.Logger) *Queue { return newQueue(sink, log, queueLength) }

func newQueue(sink Sink, log logr.Logger, length int) *Queue {
	return &Queue{sink: sink, records: make(chan Record, length), log: log, lose: metrics.CountAuditRecordLost}
}

// Add has a record written. It doesn't wait: a record that the queue has no room for is lost, and counted.
func (q *Queue) Add(r Record) {
	select {
	case q.records <- r:
	default:
		q.lose()
	}
}

// Start writes until the context ends, and then what waits, as long as that can be written within a moment.
func (q *Queue) Start(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.work(ctx)
	}()
	<-ctx.Done()
	select {
	case <-done:
		return nil
	case <-time.After(closeLimit):
		return errors.New("the audit log doesn't take the last records in time")
	}
}

func (q *Queue) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			q.drain()
			return
		case r := <-q.records:
			if !q.write(ctx, r) {
				return
			}
		}
	}
}

// write writes a record, however often that fails, and reports false when the context has ended before.
func (q *Queue) write(ctx context.Context, r Record) bool {
	fails := 0
	err := wait.PollUntilContextCancel(ctx, retryPause, true, func(context.Context) (bool, error) {
		err := q.sink.Write(r)
		if err != nil && fails == 0 {
			q.log.Error(err, "Failed to write to the audit log; retrying", "every", retryPause)
		}
		fails++
		return err == nil, nil
	})
	if err != nil {
		q.log.Info("The operator stops with audit records that it couldn't write", "records", len(q.records)+1)
	}
	return err == nil
}

// drain writes what waits, up to the first error.
func (q *Queue) drain() {
	for {
		select {
		case r := <-q.records:
			if err := q.sink.Write(r); err != nil {
				q.log.Error(err, "Failed to write the last audit records", "records", len(q.records)+1)
				return
			}
		default:
			return
		}
	}
}
