package envresolve

import (
	"cmp"
	"slices"
	"strings"
)

// Source is the layer that a variable comes from.
type Source string

// Sources, highest precedence first.
const (
	SourceCall        Source = "Call"
	SourceEnvironment Source = "Environment"
	SourceSkill       Source = "Skill"
	SourceDefault     Source = "Default"
	SourceImage       Source = "Image"
)

// Var is one variable of a layer: a literal value, or a reference when Ref isn't empty.
type Var struct {
	Name  string `json:"n"`
	Value string `json:"v,omitempty"`
	// Ref is the name in the runner's own variables that holds the value.
	Ref string `json:"r,omitempty"`
	// Optional allows the value of Ref to be absent. The layer doesn't set the variable then, so that a less specific
	// layer may, as in a Pod.
	Optional bool `json:"o,omitempty"`
	// RefersTo says what Ref stands for, in words, for the message of a call that needs a value which isn't there.
	RefersTo string `json:"a,omitempty"`
	// Apart says that other calls of the pod, which have none of it, must not be able to read the value.
	Apart bool `json:"s,omitempty"`
	// File puts the value into a file, and its path into the variable.
	File bool `json:"f,omitempty"`
}

// Layer holds the variables of one source. Of two variables with one name the later one counts, as in a Pod.
type Layer struct {
	Source Source `json:"s"`
	Vars   []Var  `json:"v,omitempty"`
}

// Known is a reference to a value that must not leave the call, with the name that stands in its place.
type Known struct {
	Name string `json:"n"`
	Ref  string `json:"r"`
}

// Plan is what is known about a call's context outside of its pod.
type Plan struct {
	// InheritMinimal takes HOME, USER, LOGNAME and PATH from the image and nothing else.
	InheritMinimal bool `json:"m,omitempty"`
	// Layers, lowest precedence first.
	Layers []Layer `json:"l,omitempty"`
	// Blocklist holds prefixes of names. None is empty.
	Blocklist []string `json:"b,omitempty"`
	// Trusted keeps variables with blocked names if a layer sets them.
	Trusted bool `json:"t,omitempty"`
	// WorkingDir is the most specific one that is set; empty for the image's.
	WorkingDir string `json:"w,omitempty"`
	// AllowedPaths of the environment in effect; empty for the defaults, see DirRequest.
	AllowedPaths []string `json:"p,omitempty"`
	// Known are references whose values must not leave the call.
	Known []Known `json:"k,omitempty"`
	// FileDir is the absolute path of the directory for the files of variables. Whoever resolves the plan sets it.
	FileDir string `json:"-"`
}

// Environment is what a plan needs of an execution environment.
type Environment struct {
	Name           string
	Vars           []Var
	WorkingDir     string
	InheritMinimal bool
	AllowedPaths   []string
}

// Call is the context that the call sets itself.
type Call struct {
	WorkingDir string
	Vars       []Var
}

// Input is what a plan is made from.
type Input struct {
	// Default is the namespace's default environment, nil when there is none.
	Default *Environment
	// Named is the environment that the call names, nil when it names none. It is the default one if their names are equal.
	Named *Environment
	// Skill holds the variables of the call's skill.
	Skill []Var
	Call  Call
	// TrustedRequested is the field trusted of the call, as admitted.
	TrustedRequested bool
	// Blocklist holds the policy's prefixes, defaults applied.
	Blocklist []string
}

// MakePlan orders the layers and decides what doesn't depend on the pod. It doesn't change its input.
func MakePlan(in Input) Plan {
	plan := Plan{
		Blocklist:  slices.Clone(in.Blocklist),
		Trusted:    isTrusted(in),
		WorkingDir: pickWorkingDir(in),
	}
	if env := effective(in); env != nil {
		plan.InheritMinimal = env.InheritMinimal
		plan.AllowedPaths = slices.Clone(env.AllowedPaths)
	}
	if in.Default != nil && (in.Named == nil || in.Named.Name != in.Default.Name) {
		plan.Layers = appendLayer(plan.Layers, SourceDefault, in.Default.Vars)
	}
	plan.Layers = appendLayer(plan.Layers, SourceSkill, in.Skill)
	if in.Named != nil {
		plan.Layers = appendLayer(plan.Layers, SourceEnvironment, in.Named.Vars)
	}
	plan.Layers = appendLayer(plan.Layers, SourceCall, in.Call.Vars)
	return plan
}

// effective is the environment that the image, the pod's settings and the policy come from.
func effective(in Input) *Environment { return cmp.Or(in.Named, in.Default) }

func isTrusted(in Input) bool {
	ownContext := in.Named != nil || in.Call.WorkingDir != "" || len(in.Call.Vars) > 0
	return effective(in) != nil && (!ownContext || in.TrustedRequested)
}

func pickWorkingDir(in Input) string {
	none := &Environment{}
	return cmp.Or(in.Call.WorkingDir, cmp.Or(in.Named, none).WorkingDir, cmp.Or(in.Default, none).WorkingDir)
}

// appendLayer sorts a copy by name, so that the plan doesn't depend on the order of the variables. The sort is stable: of
// two variables with one name the later one stays the later one.
func appendLayer(layers []Layer, source Source, vars []Var) []Layer {
	if len(vars) == 0 {
		return layers
	}
	sorted := slices.Clone(vars)
	slices.SortStableFunc(sorted, func(a, b Var) int { return strings.Compare(a.Name, b.Name) })
	return append(layers, Layer{Source: source, Vars: sorted})
}

// NeededRefs returns the references whose values can reach the process, sorted and unique. It leaves out references that
// a more specific layer overrides and those with a blocked name; the pod doesn't need their values.
func (p *Plan) NeededRefs() []string {
	var refs []string
	decided := map[string]bool{}
	for _, layer := range slices.Backward(p.Layers) {
		for _, v := range slices.Backward(layer.Vars) {
			if decided[v.Name] || p.Blocks(v.Name) {
				continue
			}
			if v.Ref != "" {
				refs = append(refs, v.Ref)
			}
			decided[v.Name] = v.Ref == "" || !v.Optional
		}
	}
	slices.Sort(refs)
	return slices.Compact(refs)
}

// NamesFiles reports whether a variable can name a file, so that Resolve needs FileDir.
func (p *Plan) NamesFiles() bool {
	return slices.ContainsFunc(p.Layers, func(l Layer) bool {
		return slices.ContainsFunc(l.Vars, func(v Var) bool { return v.File })
	})
}

// Blocks reports whether no layer can set a variable of this name.
func (p *Plan) Blocks(name string) bool { return !p.Trusted && isBlocked(p.Blocklist, name) }

// isBlocked reports whether the name starts with one of the prefixes.
func isBlocked(prefixes []string, name string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
