package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"

	"toolcall.dev/operator/internal/bounds"
)

const (
	// maxBody bounds a record's body, in bytes of its texts and valueSize for each value. Some 2000 records wait at most. maxDepth
	// bounds how deep it is.
	maxBody   = 32 << 10
	valueSize = 32
	maxDepth  = 16
	// cut stands for what isn't exported of a body.
	cut = "…"
	// attributeCut says that the body leaves something out.
	attributeCut = "toolcall.truncated"
)

// Records exports log records of one kind. A nil Records exports nothing.
type Records struct {
	logger log.Logger
	event  string
}

// Records returns what exports records with this event name; nil without an endpoint for logs.
func (e *Export) Records(event string) *Records {
	if e == nil || e.logs == nil {
		return nil
	}
	return &Records{logger: e.logs.Logger(Scope), event: event}
}

// Write exports a record: body is anything that encodes as JSON. It doesn't wait for the export, and an export that fails is counted
// as lost. The error is that of a body that doesn't encode.
func (r *Records) Write(ctx context.Context, at time.Time, body any, attributes ...attribute.KeyValue) error {
	if r == nil {
		return nil
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the body of a log record: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	var plain any
	if err := decoder.Decode(&plain); err != nil {
		return fmt.Errorf("read the body of a log record: %w", err)
	}
	v := &values{room: maxBody}
	var record log.Record
	record.SetEventName(r.event)
	record.SetTimestamp(at)
	record.SetObservedTimestamp(at)
	record.SetSeverity(log.SeverityInfo)
	record.SetBody(v.of(plain, 0))
	record.AddAttributes(attributes...)
	if v.cut {
		record.AddAttributes(attribute.Bool(attributeCut, true))
	}
	r.logger.Emit(ctx, record)
	return nil
}

// values makes values of what JSON decodes to, until there is no room left.
type values struct {
	room int
	cut  bool
}

func (v *values) of(plain any, depth int) attribute.Value {
	if depth > maxDepth || v.room <= 0 {
		v.cut = true
		return attribute.StringValue(cut)
	}
	v.room -= valueSize
	switch plain := plain.(type) {
	case string:
		return attribute.StringValue(v.text(plain))
	case bool:
		return attribute.BoolValue(plain)
	case json.Number:
		return v.number(plain)
	case []any:
		return attribute.SliceValue(v.list(plain, depth)...)
	case map[string]any:
		return attribute.MapValue(v.fields(plain, depth)...)
	default:
		return attribute.Value{}
	}
}

func (v *values) number(n json.Number) attribute.Value {
	if i, err := n.Int64(); err == nil {
		return attribute.Int64Value(i)
	}
	if f, err := n.Float64(); err == nil {
		return attribute.Float64Value(f)
	}
	return attribute.StringValue(v.text(n.String()))
}

func (v *values) list(all []any, depth int) []attribute.Value {
	list := make([]attribute.Value, 0, min(len(all), maxBody/valueSize))
	for _, one := range all {
		if v.room <= 0 {
			v.cut = true
			break
		}
		list = append(list, v.of(one, depth+1))
	}
	return list
}

// fields are sorted, so that what is cut of a body is always the same.
func (v *values) fields(all map[string]any, depth int) []attribute.KeyValue {
	list := make([]attribute.KeyValue, 0, min(len(all), maxBody/valueSize))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if v.room <= 0 {
			v.cut = true
			break
		}
		key, value := v.text(key), all[key]
		list = append(list, attribute.KeyValue{Key: attribute.Key(key), Value: v.of(value, depth+1)})
	}
	return list
}

// text is the start of a text, in whole characters, for which there is room.
func (v *values) text(text string) string {
	short := bounds.Text(text, max(v.room, 0))
	v.room -= len(text)
	if short != text {
		v.cut, v.room = true, 0
	}
	return short
}
