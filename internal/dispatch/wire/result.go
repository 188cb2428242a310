package wire

import (
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
	WorkingDir string                              `json:"workingDir,omitempty"`
	Vars       result.List[envresolve.ResolvedVar] `json:"vars,omitempty"`
	Stripped   result.List[string]                 `json:"stripped,omitempty"`
	// OmittedVars and OmittedStripped count the names that are left out: those after the first MaxNames, and those that aren't valid.
	OmittedVars     int `json:"omittedVars,omitempty"`
	OmittedStripped int `json:"omittedStripped,omitempty"`
}

// Shorten makes what a runner has measured and resolved valid: it cuts and leaves out what isn't.
func (r *Result) Shorten() {
	r.Outcome.Shorten()
	e := &r.Environment
	e.WorkingDir = result.WholePath(e.WorkingDir)
	e.Vars, e.OmittedVars = firstValid(e.Vars, e.OmittedVars, isResolved)
	e.Stripped, e.OmittedStripped = firstValid(e.Stripped, e.OmittedStripped, isVariable)
}

// firstValid are the first names of a list that may be in a result, and how many are left out: omitted, and the others.
func firstValid[T any](list []T, omitted int, isValid func(T) bool) (kept []T, left int) {
	left = max(omitted, 0)
	for _, one := range list {
		if len(kept) == MaxNames || !isValid(one) {
			left++
			continue
		}
		kept = append(kept, one)
	}
	return kept, left
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
		return errors.New("the environment has a negative number of omitted names")
	}
	for _, v := range e.Vars {
		if !isResolved(v) {
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

func isResolved(v envresolve.ResolvedVar) bool {
	switch v.Source {
	case envresolve.SourceCall, envresolve.SourceEnvironment, envresolve.SourceSkill, envresolve.SourceDefault, envresolve.SourceImage:
		return isVariable(v.Name)
	default:
		return false
	}
}
