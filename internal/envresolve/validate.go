package envresolve

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Limits in bytes. The first is the API's. The others are the kernel's: it doesn't start a process with a longer variable,
// or with arguments and variables that together take more than a quarter of the stack's limit, 8 MiB by default. Half of
// that is for the arguments.
const (
	// MaxLayerBytes bounds the names and literal values of one layer.
	MaxLayerBytes = 128 << 10
	// MaxVarBytes bounds one KEY=VALUE (MAX_ARG_STRLEN counts a final NUL).
	MaxVarBytes = 128<<10 - 1
	// MaxTotalBytes bounds all KEY=VALUE together, each with its final NUL and a pointer to it.
	MaxTotalBytes = 1 << 20
)

// perVarOverhead is a final NUL and a pointer.
const perVarOverhead = 1 + 8

// errEmptyPrefix is an error, because an empty prefix would block every name.
var errEmptyPrefix = errors.New("the blocklist contains an empty prefix: a prefix needs at least one character")

// VarError says which variable of which layer is invalid, and why. It never holds a value.
type VarError struct {
	Name   string
	Source Source
	Reason string
}

func (e *VarError) Error() string {
	return fmt.Sprintf("variable %s of layer %s: %s", quote(e.Name), e.Source, e.Reason)
}

// MissingRefError says that a reference that isn't optional has no value.
type MissingRefError struct {
	Name   string
	Source Source
	Ref    string
	// RefersTo is the variable's.
	RefersTo string
}

func (e *MissingRefError) Error() string {
	if e.RefersTo != "" {
		return fmt.Sprintf("variable %s of layer %s needs %s, which wasn't there when the pod started: create it, or make the reference optional, "+
			"and run the call in a pod that starts afterwards", quote(e.Name), e.Source, e.RefersTo)
	}
	return fmt.Sprintf("variable %s of layer %s: its value comes from reference %s, which doesn't exist",
		quote(e.Name), e.Source, quote(e.Ref))
}

// Validate returns an error for a plan that Resolve can't apply. The error names the variable or the layer. The API
// has the same rules for environments, skills and calls; this check doesn't rely on them.
func (p *Plan) Validate() error {
	if slices.Contains(p.Blocklist, "") {
		return errEmptyPrefix
	}
	for i := range p.Layers {
		if err := p.Layers[i].validate(); err != nil {
			return err
		}
	}
	return nil
}

// errNoFileDir is a mistake of the one who resolves the plan.
var errNoFileDir = errors.New("a variable names a file, and there is no directory for it")

func (l *Layer) validate() error {
	size := 0
	for i := range l.Vars {
		v := &l.Vars[i]
		if reason := l.problemOf(v); reason != "" {
			return &VarError{Name: v.Name, Source: l.Source, Reason: reason}
		}
		size += len(v.Name) + len(v.Value)
	}
	if size > MaxLayerBytes {
		return fmt.Errorf("layer %s holds %d bytes of variables, over the limit of %d", l.Source, size, MaxLayerBytes)
	}
	return nil
}

// problemOf says why a variable is invalid. It is empty for a valid one.
func (l *Layer) problemOf(v *Var) string {
	switch {
	case !IsName(v.Name):
		return "a name consists of letters, digits and underscores, and doesn't start with a digit"
	case hasNUL(v.Value):
		return "a value must not contain a NUL byte"
	case v.File && v.Ref == "":
		return "only the value of a reference can be in a file"
	case v.Ref == "":
		return ""
	case v.Value != "":
		return "it has both a value and a reference"
	case l.Source == SourceCall:
		return "variables of a call must have a literal value"
	default:
		return ""
	}
}

// IsName reports whether the name is valid for a variable: letters, digits and underscores of ASCII, not starting with a
// digit.
func IsName(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c == '_' || (c|0x20 >= 'a' && c|0x20 <= 'z')
		digit := c >= '0' && c <= '9'
		if !letter && (!digit || i == 0) {
			return false
		}
	}
	return name != ""
}

func hasNUL(s string) bool { return strings.IndexByte(s, 0) >= 0 }

// quote quotes a name or path for a message: shortened, with control characters escaped.
func quote(s string) string {
	const limit = 256
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
