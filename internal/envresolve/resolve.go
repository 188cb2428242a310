package envresolve

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Resolved is the environment of the process.
type Resolved struct {
	// Env is KEY=VALUE, unique and sorted by name.
	Env []string `json:"e,omitempty"`
	// Vars holds the source of each variable of Env, in the same order.
	Vars []ResolvedVar `json:"v,omitempty"`
	// Known are the values that must not leave the call. A reference without a value has none.
	Known []KnownValue `json:"-"`
	// Apart are the variables of Env that are Var.Apart, in the same order.
	Apart []string `json:"-"`
	// Files are what some of the variables name. They have to exist before the process starts.
	Files []File `json:"-"`
	// Stripped are the names of removed variables, sorted and unique: blocked ones of the image, even if a trusted layer
	// sets them again; blocked ones of an untrusted layer; and variables of a layer with the name of a runner's own.
	Stripped []string `json:"s,omitempty"`
}

// ResolvedVar is the name and the source of a variable.
type ResolvedVar struct {
	Name   string `json:"n"`
	Source Source `json:"s"`
}

// KnownValue is a value that must not leave the call.
type KnownValue struct {
	// Given says that the process gets the value, in a variable or in a file.
	Given       bool
	Name, Value string
}

// File is one that a variable names.
type File struct {
	Path, Content string
}

// Values of variables that no layer sets. The LANG of the image counts. Its TERM doesn't, since there is no terminal.
const (
	defaultLang = "en_US.UTF-8"
	defaultTerm = "dumb"
)

// Resolve applies the plan to the variables that the image gave the runner, as KEY=VALUE.
//
// internal reports which names are the runner's own; if it is nil, only the plan's references are. They are removed
// without being listed as stripped, since nobody set them. A layer can't set them either.
//
// Variables of the image are left out if they have no "=", a name with other characters than letters, digits and
// underscores, a NUL byte, or more bytes than the kernel allows. Of those with one name the first counts, as it does for
// getenv(3).
func Resolve(p *Plan, image []string, internal func(name string) bool) (Resolved, error) {
	if err := p.Validate(); err != nil {
		return Resolved{}, err
	}
	most := len(image) + 2
	for i := range p.Layers {
		most += len(p.Layers[i].Vars)
	}
	m := merge{plan: p, isInternal: internal, refs: lookUpRefs(p, image), vars: make(map[string]candidate, most), given: map[string]bool{}}
	m.addBase(image)
	m.addLayers()
	return m.finish()
}

// lookUpRefs looks up the values of the plan's references in the runner's variables; nil for one that isn't there.
func lookUpRefs(p *Plan, image []string) map[string]*string {
	refs := map[string]*string{}
	for i := range p.Layers {
		for j := range p.Layers[i].Vars {
			if ref := p.Layers[i].Vars[j].Ref; ref != "" {
				refs[ref] = nil
			}
		}
	}
	for _, k := range p.Known {
		refs[k.Ref] = nil
	}
	for _, kv := range image {
		name, value, ok := strings.Cut(kv, "=")
		if have, wanted := refs[name]; ok && wanted && have == nil && !hasNUL(kv) {
			refs[name] = &value
		}
	}
	return refs
}

// candidate is a variable that one source sets.
type candidate struct {
	source Source
	v      *Var
}

// merge collects the variables of all sources, the least specific ones first: the one that is added last counts.
type merge struct {
	plan       *Plan
	isInternal func(string) bool
	refs       map[string]*string
	vars       map[string]candidate
	files      []File
	// given are the references whose values the process gets.
	given    map[string]bool
	stripped []string
}

func (m *merge) internal(name string) bool {
	if _, ok := m.refs[name]; ok {
		return true
	}
	return m.isInternal != nil && m.isInternal(name)
}

// addBase adds the variables of the image, and the two defaults that count as variables of the image.
func (m *merge) addBase(image []string) {
	m.addBaseVar("LANG", defaultLang)
	// The candidate that is added last counts, which must be the first one of the image.
	for _, kv := range slices.Backward(image) {
		if name, value, ok := strings.Cut(kv, "="); ok && len(kv) <= MaxVarBytes && !hasNUL(kv) && m.inherits(name) {
			m.addBaseVar(name, value)
		}
	}
	m.addBaseVar("TERM", defaultTerm)
}

func (m *merge) addBaseVar(name, value string) {
	if isBlocked(m.plan.Blocklist, name) {
		m.stripped = append(m.stripped, name)
		return
	}
	m.vars[name] = candidate{SourceImage, &Var{Name: name, Value: value}}
}

// minimal are the variables that a plan with InheritMinimal takes from the image.
var minimal = []string{"HOME", "USER", "LOGNAME", "PATH"}

// inherits says that the process may have a variable of the image.
func (m *merge) inherits(name string) bool {
	return IsName(name) && (!m.plan.InheritMinimal || slices.Contains(minimal, name)) && !m.internal(name)
}

func (m *merge) addLayers() {
	for i := range m.plan.Layers {
		layer := &m.plan.Layers[i]
		for j := range layer.Vars {
			v := &layer.Vars[j]
			switch {
			case m.plan.Blocks(v.Name) || m.internal(v.Name):
				m.stripped = append(m.stripped, v.Name)
			case v.Ref != "" && v.Optional && m.refs[v.Ref] == nil:
				// It leaves the variable to a less specific source.
			default:
				m.vars[v.Name] = candidate{layer.Source, v}
			}
		}
	}
}

func (m *merge) finish() (Resolved, error) {
	slices.Sort(m.stripped)
	out := Resolved{
		Env: make([]string, 0, len(m.vars)), Vars: make([]ResolvedVar, 0, len(m.vars)),
		Stripped: slices.Compact(m.stripped),
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(m.vars)) {
		c := m.vars[name]
		kv, err := m.render(c)
		if err != nil {
			return Resolved{}, err
		}
		total += len(kv) + perVarOverhead
		out.Env = append(out.Env, kv)
		out.Vars = append(out.Vars, ResolvedVar{Name: name, Source: c.source})
		if c.v.Apart {
			out.Apart = append(out.Apart, name)
		}
	}
	out.Files = m.files
	for _, k := range m.plan.Known {
		if value := m.refs[k.Ref]; value != nil {
			out.Known = append(out.Known, KnownValue{Name: k.Name, Value: *value, Given: m.given[k.Ref]})
		}
	}
	if total > MaxTotalBytes {
		return Resolved{}, fmt.Errorf("the variables take %d bytes in total, over the limit of %d", total, MaxTotalBytes)
	}
	return out, nil
}

// render returns a candidate as KEY=VALUE.
func (m *merge) render(c candidate) (string, error) {
	value := c.v.Value
	if c.v.Ref != "" {
		ref := m.refs[c.v.Ref]
		switch {
		case ref == nil && c.v.RefersTo != "":
			return "", fmt.Errorf("variable %s of layer %s needs %s, which wasn't there when the pod started: create it, or make the reference optional, "+
				"and run the call in a pod that starts afterwards", quote(c.v.Name), c.source, c.v.RefersTo)
		case ref == nil:
			return "", varError(c.v, c.source, "its value comes from reference "+quote(c.v.Ref)+", which doesn't exist")
		}
		value, m.given[c.v.Ref] = *ref, true
	}
	if c.v.File {
		if m.plan.FileDir == "" {
			return "", errors.New("a variable names a file, and there is no directory for it")
		}
		path := m.plan.FileDir + "/" + c.v.Name
		m.files = append(m.files, File{Path: path, Content: value})
		value = path
	}
	if size := len(c.v.Name) + 1 + len(value); size > MaxVarBytes {
		return "", varError(c.v, c.source, fmt.Sprintf("name and value take %d bytes, over the kernel's limit of %d", size, MaxVarBytes))
	}
	return c.v.Name + "=" + value, nil
}
