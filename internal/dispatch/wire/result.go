package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
)

// Result is how a call ended. Outcome.Started says whether its command was started.
type Result struct {
	CallUID string         `json:"callUID"`
	Outcome result.Outcome `json:"outcome"`
	// Environment is what was resolved: names and sources, never values.
	Environment Environment `json:"environment"`
	// Decision is that of a session's call, as the operator sealed it; empty for one that was stopped before it was assigned.
	Decision string `json:"decision,omitempty"`
}

// Environment is what a runner resolved.
type Environment struct {
	WorkingDir string                   `json:"workingDir,omitempty"`
	Vars       []envresolve.ResolvedVar `json:"vars,omitempty"`
	Stripped   []string                 `json:"stripped,omitempty"`
	// OmittedVars and OmittedStripped count the names that are left out: those after the first MaxNames, and those
	// longer than MaxNameBytes.
	OmittedVars     int `json:"omittedVars,omitempty"`
	OmittedStripped int `json:"omittedStripped,omitempty"`
}

// Shorten makes what a runner has measured and resolved valid: it cuts and leaves out what isn't.
func (r *Result) Shorten() {
	r.Outcome.Shorten()
	e := &r.Environment
	e.WorkingDir = result.WholePath(e.WorkingDir)
	var vars names[envresolve.ResolvedVar]
	for _, v := range e.Vars {
		if !isVariable(v.Name) || !isSource(v.Source) {
			vars.omitted++
			continue
		}
		vars.add(v, v.Name)
	}
	var stripped names[string]
	for _, name := range e.Stripped {
		if !isVariable(name) {
			stripped.omitted++
			continue
		}
		stripped.add(name, name)
	}
	e.Vars, e.OmittedVars = vars.kept, max(e.OmittedVars, 0)+vars.omitted
	e.Stripped, e.OmittedStripped = stripped.kept, max(e.OmittedStripped, 0)+stripped.omitted
}

// Validate says whether a runner can have measured the result.
func (r *Result) Validate() error {
	if err := r.Outcome.Validate(); err != nil {
		return err
	}
	e := &r.Environment
	switch {
	case len(r.Decision) > MaxDecision || !isPlain(r.Decision):
		return errors.New("the decision is larger than it may be, or isn't sealed")
	case len(e.WorkingDir) > result.MaxWorkingDir:
		return errors.New("the environment's working directory is longer than it may be")
	case len(e.Vars) > MaxNames || len(e.Stripped) > MaxNames:
		return errors.New("the environment holds more names than it may")
	case e.OmittedVars < 0 || e.OmittedStripped < 0:
		return errors.New("the environment omits less than nothing")
	}
	for _, v := range e.Vars {
		if !isVariable(v.Name) || !isSource(v.Source) {
			return fmt.Errorf("the environment holds %.64q of %.64q, which is no variable", v.Name, v.Source)
		}
	}
	for _, name := range e.Stripped {
		if !isVariable(name) {
			return fmt.Errorf("the environment strips %.64q, which is no variable", name)
		}
	}
	return nil
}

func isVariable(name string) bool { return len(name) <= MaxNameBytes && envresolve.IsName(name) }

func isSource(s envresolve.Source) bool {
	switch s {
	case envresolve.SourceCall, envresolve.SourceEnvironment, envresolve.SourceSkill, envresolve.SourceDefault, envresolve.SourceImage:
		return true
	default:
		return false
	}
}

// UnmarshalJSON keeps no more names than MaxNames, whatever a runner sends: a list of empty objects would take many
// times the memory of its encoding.
func (e *Environment) UnmarshalJSON(raw []byte) error {
	var encoded struct {
		WorkingDir      string          `json:"workingDir"`
		Vars            json.RawMessage `json:"vars"`
		Stripped        json.RawMessage `json:"stripped"`
		OmittedVars     int             `json:"omittedVars"`
		OmittedStripped int             `json:"omittedStripped"`
	}
	if err := json.Unmarshal(raw, &encoded); err != nil {
		return err
	}
	vars, err := decodeNames(encoded.Vars, func(v envresolve.ResolvedVar) string { return v.Name })
	if err != nil {
		return fmt.Errorf("vars: %w", err)
	}
	stripped, err := decodeNames(encoded.Stripped, func(name string) string { return name })
	if err != nil {
		return fmt.Errorf("stripped: %w", err)
	}
	*e = Environment{
		WorkingDir: encoded.WorkingDir, Vars: vars.kept, Stripped: stripped.kept,
		OmittedVars: encoded.OmittedVars + vars.omitted, OmittedStripped: encoded.OmittedStripped + stripped.omitted,
	}
	return nil
}

// names is a bounded list of things with a name.
type names[T any] struct {
	kept    []T
	omitted int
}

func (n *names[T]) add(v T, name string) {
	if len(n.kept) == MaxNames || len(name) > MaxNameBytes {
		n.omitted++
		return
	}
	n.kept = append(n.kept, v)
}

func decodeNames[T any](raw json.RawMessage, nameOf func(T) string) (names[T], error) {
	var list names[T]
	if len(raw) == 0 || string(raw) == "null" {
		return list, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if start, err := dec.Token(); err != nil || start != json.Delim('[') {
		return list, errors.New("not a list")
	}
	for dec.More() {
		var v T
		if err := dec.Decode(&v); err != nil {
			return list, err
		}
		list.add(v, nameOf(v))
	}
	return list, nil
}
