package decide

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/spec"
)

// MaxStoredBytes bounds an encoded decision: the API server takes 256 KiB of annotations on an object, and sealing
// makes it a third longer.
const MaxStoredBytes = 180 << 10

// Encode writes the stored part of a decision, without the call's own variables, which the call itself holds. The
// error is the user's: the environments' variables are too large.
func (d *Decision) Encode() ([]byte, error) {
	stored := *d
	stored.Plan.Layers = withoutCall(d.Plan.Layers)
	return encode(&stored, "the variables of the environments, the skill and the session, and the policy's programs, paths and network")
}

// encode writes what is stored. The error says what it is made of.
func encode(stored any, parts string) ([]byte, error) {
	var raw strings.Builder
	e := json.NewEncoder(&raw)
	// Nobody reads it as HTML, where "<" has to be six bytes.
	e.SetEscapeHTML(false)
	if err := e.Encode(stored); err != nil {
		return nil, fmt.Errorf("encode %s: %w", parts, err)
	}
	text := strings.TrimSuffix(raw.String(), "\n")
	if len(text) > MaxStoredBytes {
		return nil, fmt.Errorf("%s take %d bytes together as JSON, and at most %d of them can be kept with a call or a session: "+
			"put large values into a file or a ConfigMap volume", parts, len(text), MaxStoredBytes)
	}
	return []byte(text), nil
}

// Decode reads what Encode wrote.
func Decode(raw []byte) (*Decision, error) {
	d := &Decision{}
	if err := json.Unmarshal(raw, d); err != nil {
		return nil, fmt.Errorf("decode the decision: %w", err)
	}
	return d, nil
}

func withoutCall(layers []envresolve.Layer) []envresolve.Layer {
	return slices.DeleteFunc(slices.Clone(layers), func(layer envresolve.Layer) bool { return layer.Source == envresolve.SourceCall })
}

// HandedOver is what the status of a session's call needs of a decision when the call ends. Its runner has the rest, and nobody
// decides about the call again.
func (d *Decision) HandedOver(at time.Time) *Decision {
	bounds := d.Bounds
	bounds.Rules = nil
	return &Decision{
		Environment: d.Environment, RuntimeClass: d.RuntimeClass, Bounds: bounds, Plan: envresolve.Plan{Trusted: d.Plan.Trusted},
		CreatedMicroseconds: d.CreatedMicroseconds, AcceptedMicroseconds: d.AcceptedMicroseconds, AssignedMicroseconds: at.UnixMicro(),
		Network: shown(d.Network), WeakPrograms: d.WeakPrograms,
	}
}

// shown keeps of a network what the status says of it.
func shown(n *network.Rules) *network.Rules {
	if n == nil {
		return nil
	}
	return &network.Rules{Mode: n.Mode, Hosts: ReachableHosts(n)}
}

// Assigned is when a session's call was handed over.
func (d *Decision) Assigned() time.Time { return time.UnixMicro(d.AssignedMicroseconds) }

// Created is when the call was created.
func (d *Decision) Created() time.Time { return time.UnixMicro(d.CreatedMicroseconds) }

// Accepted is when the call was decided about.
func (d *Decision) Accepted() time.Time { return time.UnixMicro(d.AcceptedMicroseconds) }

// StartTimeout is how long the call may wait for its process to start.
func (d *Decision) StartTimeout() time.Duration {
	return time.Duration(d.StartTimeoutSeconds) * time.Second
}

// Assignment completes a decision with the call's own input, for its runner. The call is the whole object; a cached
// one may lack its input.
func (d *Decision) Assignment(call *v1alpha1.ToolCall) (*wire.Assignment, error) {
	action, unmapped := guards.Map(&call.Spec)
	if unmapped != nil {
		return nil, fmt.Errorf("map an accepted call: %s: %s", unmapped.Reason, unmapped.Message)
	}
	plan := d.Plan
	plan.Layers = withoutCall(d.Plan.Layers)
	if env := mergeEnv(d.SessionEnv, call.Spec.Env); len(env) > 0 {
		plan.Layers = append(plan.Layers, envresolve.Layer{Source: envresolve.SourceCall, Vars: callVariables(env)})
	}
	a := &wire.Assignment{
		CallUID:     string(call.UID),
		CallName:    call.Name,
		Argv:        append([]string{}, d.ArgvPrefix...),
		Stdin:       []byte(call.Spec.Stdin),
		Bounds:      d.Bounds,
		Environment: plan,
		Collect:     d.collect(call),
	}
	if d.Network != nil {
		a.Network = &spec.Network{Rules: *d.Network}
	}
	switch action.Type {
	case v1alpha1.ActionShell:
		a.Argv = append(a.Argv, action.Command)
	case v1alpha1.ActionCode:
		a.Source, a.HasSource, a.Language = []byte(action.Source), true, action.Language
	case v1alpha1.ActionFile:
		var err error
		if a.File, err = d.file(action.File); err != nil {
			return nil, err
		}
		a.MaxBytesPerStream = min(a.MaxBytesPerStream, outputRoom(call))
	default:
		a.Argv = append(append(a.Argv, action.Binary), action.Args...)
	}
	return a, nil
}
