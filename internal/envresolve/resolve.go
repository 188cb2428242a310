package envresolve

import (
	"cmp"
	"fmt"
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
	Trusted  bool     `json:"t,omitempty"`
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
	m := merge{plan: p, isInternal: internal, refs: lookUpRefs(p, image)}
	m.addBase(image)
	m.addLayers()
	return m.finish()
}

// refValue is the value of a reference.
type refValue struct {
	value string
	found bool
}

// lookUpRefs looks up the values of the plan's references in the runner's variables.
func lookUpRefs(p *Plan, image []string) map[string]refValue {
	var refs map[string]refValue
	want := func(ref string) {
		if ref == "" {
			return
		}
		if refs == nil {
			refs = map[string]refValue{}
		}
		refs[ref] = refValue{}
	}
	for i := range p.Layers {
		for _, v := range p.Layers[i].Vars {
			want(v.Ref)
		}
	}
	for _, k := range p.Known {
		want(k.Ref)
	}
	if refs == nil {
		return nil
	}
	for _, kv := range image {
		name, value, ok := strings.Cut(kv, "=")
		if have, wanted := refs[name]; ok && wanted && !have.found && !hasNUL(kv) {
			refs[name] = refValue{value: value, found: true}
		}
	}
	return refs
}

// candidate is a variable that one source sets.
type candidate struct {
	source Source
	v      *Var
	// kv is KEY=VALUE, if the source has that form.
	kv string
}

// key orders candidates: by name, then more specific ones first. at is the index of the candidate.
type key struct {
	name string
	at   int
}

// merge collects the candidates of all sources, the least specific ones first.
type merge struct {
	plan       *Plan
	isInternal func(string) bool
	refs       map[string]refValue
	candidates []candidate
	files      []File
	// given are the references whose values the process gets.
	given    map[string]bool
	keys     []key
	stripped []string
	// text holds all KEY=VALUE that are composed here, in one allocation.
	text strings.Builder
}

func (m *merge) add(name string, c candidate) {
	m.keys = append(m.keys, key{name: name, at: len(m.candidates)})
	m.candidates = append(m.candidates, c)
}

func (m *merge) internal(name string) bool {
	if _, ok := m.refs[name]; ok {
		return true
	}
	return m.isInternal != nil && m.isInternal(name)
}

// addBase adds the variables of the image, and the two defaults that count as variables of the image.
func (m *merge) addBase(image []string) {
	room, bytes := len(image)+2, 0
	for i := range m.plan.Layers {
		room += len(m.plan.Layers[i].Vars)
		for _, v := range m.plan.Layers[i].Vars {
			bytes += len(v.Name) + 1 + len(v.Value)
		}
	}
	m.text.Grow(bytes)
	m.candidates = make([]candidate, 0, room)
	m.keys = make([]key, 0, room)
	m.addBaseVar("LANG", "LANG="+defaultLang)
	// The candidate that is added last counts, which must be the first one of the image.
	for _, kv := range slices.Backward(image) {
		if name, ok := m.baseName(kv); ok {
			m.addBaseVar(name, kv)
		}
	}
	m.addBaseVar("TERM", "TERM="+defaultTerm)
}

func (m *merge) addBaseVar(name, kv string) {
	if isBlocked(m.plan.Blocklist, name) {
		m.stripped = append(m.stripped, name)
		return
	}
	m.add(name, candidate{source: SourceImage, kv: kv})
}

// baseName returns the name of a variable of the image, if the process may inherit it.
func (m *merge) baseName(kv string) (string, bool) {
	name, _, ok := strings.Cut(kv, "=")
	if !ok || !IsName(name) || len(kv) > MaxVarBytes || hasNUL(kv) {
		return "", false
	}
	if m.plan.InheritMinimal && !isMinimal(name) {
		return "", false
	}
	return name, !m.internal(name)
}

func isMinimal(name string) bool {
	switch name {
	case "HOME", "USER", "LOGNAME", "PATH":
		return true
	default:
		return false
	}
}

func (m *merge) addLayers() {
	for i := range m.plan.Layers {
		layer := &m.plan.Layers[i]
		for j := range layer.Vars {
			m.addLayerVar(layer.Source, &layer.Vars[j])
		}
	}
}

func (m *merge) addLayerVar(source Source, v *Var) {
	if m.plan.Blocks(v.Name) || m.internal(v.Name) {
		m.stripped = append(m.stripped, v.Name)
		return
	}
	m.add(v.Name, candidate{source: source, v: v})
}

func (m *merge) finish() (Resolved, error) {
	slices.SortFunc(m.keys, compareKeys)
	slices.Sort(m.stripped)
	out := Resolved{
		Env:      make([]string, 0, len(m.keys)),
		Vars:     make([]ResolvedVar, 0, len(m.keys)),
		Stripped: slices.Compact(m.stripped),
		Trusted:  m.plan.Trusted,
	}
	total := 0
	for _, k := range m.keys {
		if n := len(out.Vars); n > 0 && out.Vars[n-1].Name == k.name {
			continue // A more specific source has decided.
		}
		kv, ok, err := m.render(k.at)
		if err != nil {
			return Resolved{}, err
		}
		if ok {
			total += len(kv) + perVarOverhead
			out.Env = append(out.Env, kv)
			out.Vars = append(out.Vars, ResolvedVar{Name: k.name, Source: m.candidates[k.at].source})
			if v := m.candidates[k.at].v; v != nil && v.Apart {
				out.Apart = append(out.Apart, k.name)
			}
		}
	}
	out.Files = m.files
	for _, k := range m.plan.Known {
		if value := m.refs[k.Ref]; value.found {
			out.Known = append(out.Known, KnownValue{Name: k.Name, Value: value.value, Given: m.given[k.Ref]})
		}
	}
	if total > MaxTotalBytes {
		return Resolved{}, fmt.Errorf("the variables take %d bytes in all, over the limit of %d", total, MaxTotalBytes)
	}
	return out, nil
}

func compareKeys(a, b key) int {
	if order := strings.Compare(a.name, b.name); order != 0 {
		return order
	}
	return cmp.Compare(b.at, a.at)
}

// render returns a candidate as KEY=VALUE, or false for an optional reference without a value.
func (m *merge) render(at int) (string, bool, error) {
	c := &m.candidates[at]
	if c.v == nil {
		return c.kv, true, nil
	}
	value := c.v.Value
	if c.v.Ref != "" {
		ref := m.refs[c.v.Ref]
		if !ref.found && c.v.Optional {
			return "", false, nil
		}
		if !ref.found {
			return "", false, &MissingRefError{Name: c.v.Name, Source: c.source, Ref: c.v.Ref, RefersTo: c.v.RefersTo}
		}
		value = ref.value
		if m.given == nil {
			m.given = map[string]bool{}
		}
		m.given[c.v.Ref] = true
	}
	if c.v.File && m.plan.FileDir == "" {
		return "", false, errNoFileDir
	}
	if c.v.File {
		path := m.plan.FileDir + "/" + c.v.Name
		m.files = append(m.files, File{Path: path, Content: value})
		value = path
	}
	if size := len(c.v.Name) + 1 + len(value); size > MaxVarBytes {
		reason := fmt.Sprintf("name and value take %d bytes, over the kernel's limit of %d", size, MaxVarBytes)
		return "", false, &VarError{Name: c.v.Name, Source: c.source, Reason: reason}
	}
	return m.join(c.v.Name, value), true, nil
}

func (m *merge) join(name, value string) string {
	start := m.text.Len()
	m.text.WriteString(name)
	m.text.WriteByte('=')
	m.text.WriteString(value)
	return m.text.String()[start:]
}
