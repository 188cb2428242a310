package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"

	"toolcall.dev/operator/internal/bounds"
)

const (
	// maxBody bounds a record's body, in bytes of JSON. Some 2000 records wait at most.
	maxBody = 64 << 10
	// attributeCut says that the body is the beginning of a longer one's JSON, as text.
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
	var record log.Record
	record.SetEventName(r.event)
	record.SetTimestamp(at)
	record.SetObservedTimestamp(at)
	record.SetSeverity(log.SeverityInfo)
	record.AddAttributes(attributes...)
	if len(encoded) > maxBody {
		record.SetBody(attribute.StringValue(bounds.Text(string(encoded), maxBody)))
		record.AddAttributes(attribute.Bool(attributeCut, true))
	} else {
		decoder := json.NewDecoder(bytes.NewReader(encoded))
		decoder.UseNumber()
		var plain any
		_ = decoder.Decode(&plain) // what was just encoded
		record.SetBody(valueOf(plain))
	}
	r.logger.Emit(ctx, record)
	return nil
}

// valueOf makes a value of what JSON decodes to.
func valueOf(plain any) attribute.Value {
	switch plain := plain.(type) {
	case string:
		return attribute.StringValue(plain)
	case bool:
		return attribute.BoolValue(plain)
	case json.Number:
		if i, err := plain.Int64(); err == nil {
			return attribute.Int64Value(i)
		}
		f, _ := plain.Float64()
		return attribute.Float64Value(f)
	case []any:
		list := make([]attribute.Value, 0, len(plain))
		for _, one := range plain {
			list = append(list, valueOf(one))
		}
		return attribute.SliceValue(list...)
	case map[string]any:
		list := make([]attribute.KeyValue, 0, len(plain))
		for key, value := range plain {
			list = append(list, attribute.KeyValue{Key: attribute.Key(key), Value: valueOf(value)})
		}
		return attribute.MapValue(list...)
	default:
		return attribute.Value{}
	}
}
