package jobspec

import (
	"encoding/json"
	"fmt"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
)

// Record is what was decided when a call was accepted: all that a runner needs besides the call itself. It is
// kept in the Job, sealed, so that the call keeps what it started with when its environment, skill or policy
// changes or goes, and so that it is decided once even when the operator is restarted in between.
type Record struct {
	Environment         string   `json:"environment"`
	ArgvPrefix          []string `json:"argvPrefix,omitempty"`
	TimeoutMilliseconds int64    `json:"timeoutMilliseconds"`
	MaxBytesPerStream   int      `json:"maxBytesPerStream"`
	DenyNetwork         bool     `json:"denyNetwork,omitempty"`
	StartTimeoutSeconds int32    `json:"startTimeoutSeconds"`
	// SeenMicroseconds is when the call was first seen, since the Unix epoch.
	SeenMicroseconds int64 `json:"seenMicroseconds"`
	// AcceptedMillis is how long after that it was accepted.
	AcceptedMillis int64           `json:"acceptedMillis"`
	Plan           envresolve.Plan `json:"plan"`
}

// MaxRecordBytes bounds an encoded record: the API server takes 256 KiB of annotations on an object.
const MaxRecordBytes = 200 << 10

// encode writes the record without the call's own variables, which the call itself holds.
func (r *Record) encode() (string, error) {
	slim := *r
	slim.Plan.Layers = withoutCall(r.Plan.Layers)
	raw, err := json.Marshal(&slim)
	if err != nil {
		return "", fmt.Errorf("encode the call's plan: %w", err)
	}
	if len(raw) > MaxRecordBytes {
		return "", fmt.Errorf("the variables of the environments and the skill take %d bytes together, at most %d are possible: put large values into a file or ConfigMap volume", len(raw), MaxRecordBytes)
	}
	return string(raw), nil
}

func decode(raw string) (*Record, error) {
	r := &Record{}
	if err := json.Unmarshal([]byte(raw), r); err != nil {
		return nil, fmt.Errorf("decode the call's plan: %w", err)
	}
	return r, nil
}

func withoutCall(layers []envresolve.Layer) []envresolve.Layer {
	var kept []envresolve.Layer
	for _, layer := range layers {
		if layer.Source != envresolve.SourceCall {
			kept = append(kept, layer)
		}
	}
	return kept
}

// CallLayer is the layer of a call's own variables.
func CallLayer(call *v1alpha1.ToolCall) envresolve.Layer {
	layer := envresolve.Layer{Source: envresolve.SourceCall}
	for _, v := range call.Spec.Env {
		layer.Vars = append(layer.Vars, envresolve.Var{Name: v.Name, Value: v.Value})
	}
	return layer
}

// Action is the part of a mapped action that an assignment needs.
type Action struct {
	// Argv is what follows the record's prefix.
	Argv []string
	// Source is a snippet for the interpreter; nil for other actions.
	Source []byte
}

// Assignment completes a record with the call, for its runner.
func (r *Record) Assignment(call *v1alpha1.ToolCall, action Action) *wire.Assignment {
	plan := r.Plan
	plan.Layers = withoutCall(r.Plan.Layers)
	if len(call.Spec.Env) > 0 {
		plan.Layers = append(plan.Layers, CallLayer(call))
	}
	return &wire.Assignment{
		CallUID:             string(call.UID),
		CallName:            call.Name,
		Argv:                append(append([]string{}, r.ArgvPrefix...), action.Argv...),
		Source:              action.Source,
		HasSource:           action.Source != nil,
		Stdin:               []byte(call.Spec.Stdin),
		TimeoutMilliseconds: r.TimeoutMilliseconds,
		MaxBytesPerStream:   r.MaxBytesPerStream,
		DenyNetwork:         r.DenyNetwork,
		Environment:         plan,
	}
}
