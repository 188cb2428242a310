package otlp

import (
	"context"
	"errors"
	"sync/atomic"

	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// errFull is the error of a record for which there is no room.
var errFull = errors.New("too many log records wait for the OTLP endpoint")

// queue counts the items of a signal between their end and the end of their export. The processors of the SDK drop what they have no
// room for and tell nobody, so that nothing gets as far as that here.
type queue struct {
	*destination
	waiting atomic.Int64
}

// enter takes a place for an item. Without one the item is lost.
func (q *queue) enter() bool {
	if q.waiting.Add(1) > q.limit {
		q.waiting.Add(-1)
		q.lost(q.signal, 1)
		return false
	}
	return true
}

// leave gives the places of an export back.
func (q *queue) leave(n int, err error) {
	q.waiting.Add(int64(-n))
	if err != nil {
		q.lost(q.signal, n)
	}
}

// spanProcessor passes spans on for which there is room.
type spanProcessor struct {
	sdktrace.SpanProcessor
	*queue
}

// OnEnd implements sdktrace.SpanProcessor.
func (s *spanProcessor) OnEnd(span sdktrace.ReadOnlySpan) {
	if span.SpanContext().IsSampled() && s.enter() {
		s.SpanProcessor.OnEnd(span)
	}
}

type countedSpans struct {
	sdktrace.SpanExporter
	*queue
}

// ExportSpans implements sdktrace.SpanExporter.
func (c countedSpans) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	c.leave(len(spans), err)
	return err
}

// recordProcessor passes log records on for which there is room.
type recordProcessor struct {
	sdklog.Processor
	*queue
}

// OnEmit implements sdklog.Processor.
func (r *recordProcessor) OnEmit(ctx context.Context, record *sdklog.Record) error {
	if !r.enter() {
		return errFull
	}
	return r.Processor.OnEmit(ctx, record)
}

type countedRecords struct {
	sdklog.Exporter
	*queue
}

// Export implements sdklog.Exporter.
func (c countedRecords) Export(ctx context.Context, records []sdklog.Record) error {
	err := c.Exporter.Export(ctx, records)
	c.leave(len(records), err)
	return err
}

type countedMetrics struct {
	sdkmetric.Exporter
	*destination
}

// Export implements sdkmetric.Exporter.
func (c countedMetrics) Export(ctx context.Context, all *metricdata.ResourceMetrics) error {
	err := c.Exporter.Export(ctx, all)
	if err != nil {
		c.lost(c.signal, 1)
	}
	return err
}
