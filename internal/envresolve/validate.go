package envresolve

import (
	"errors"
	"fmt"
	"strings"
)

// Limits in bytes. The first is the API's; the others are the kernel's, which refuses to start a process
// with a longer variable, or with more than a quarter of the stack's limit (8 MiB by default) in
// arguments and variables together: half of that is left for the arguments.
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

// errEmptyPrefix is an error, not ignored: it would block every name, or none where a check is lax.
var errEmptyPrefix = errors.New("the blocklist holds an empty prefix: each needs at least one character")

// VarError says which variable of which layer can't be used, and why. It never holds a value.
type VarError struct {
	Name   string
	Source Source
	Reason string
}

func (e *VarError) Error() string {
	return fmt.Sprintf("variable %s of layer %s: %s", quote(e.Name), e.Source, e.Reason)
}

// MissingRefError says that nothing is behind the reference of a variable that isn't optional.
type MissingRefError struct {
	Name   string
	Source Source
	Ref    string
}

func (e *MissingRefError) Error() string {
	return fmt.Sprintf("variable %s of layer %s: its value is taken from reference %s, which isn't there",
		quote(e.Name), e.Source, quote(e.Ref))
}

// Validate refuses a plan that Resolve can't follow, with an error that names the variable or the layer.
// The API refuses the same for environments, skills and calls; a plan may have been made otherwise.
func (p *Plan) Validate() error {
	for _, prefix := range p.Blocklist {
		if prefix == "" {
			return errEmptyPrefix
		}
	}
	for i := range p.Layers {
		if err := p.Layers[i].validate(); err != nil {
			return err
		}
	}
	return nil
}

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

// problemOf says why a variable can't be used, or nothing when it can.
func (l *Layer) problemOf(v *Var) string {
	switch {
	case !IsName(v.Name):
		return "a name is letters, digits and underscores, and doesn't start with a digit"
	case hasNUL(v.Value):
		return "a value must not hold a NUL byte"
	case v.Ref == "":
		return ""
	case v.Value != "":
		return "it has both a value and a reference"
	case l.Source == SourceCall:
		return "a call's own variables are literal"
	default:
		return ""
	}
}

// IsName reports whether a variable may have the name: letters, digits and underscores of ASCII, not
// starting with a digit.
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

// quote makes a name or path safe to print: control characters escaped, bounded.
func quote(s string) string {
	const limit = 256
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
