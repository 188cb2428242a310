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
	// MaxLayerBytes bounds the literal variables of one object. A call's layer has two: the call's own, and its session's.
	MaxLayerBytes = 128 << 10
	// MaxVarBytes bounds one KEY=VALUE (MAX_ARG_STRLEN counts a final NUL).
	MaxVarBytes = 128<<10 - 1
	// MaxTotalBytes bounds all KEY=VALUE together, each with its final NUL and a pointer to it.
	MaxTotalBytes = 1 << 20
)

// perVarOverhead is a final NUL and a pointer.
const perVarOverhead = 1 + 8

// varError says which variable of which layer is invalid, and why. It never holds a value.
func varError(v *Var, source Source, why string) error {
	return fmt.Errorf("variable %s of layer %s: %s", quote(v.Name), source, why)
}

// Validate returns an error for a plan that Resolve can't apply. The error names the variable or the layer. The API
// has the same rules for environments, skills and calls; this check doesn't rely on them.
func (p *Plan) Validate() error {
	if slices.Contains(p.Blocklist, "") {
		// It would block every name.
		return errors.New("the blocklist contains an empty prefix: a prefix needs at least one character")
	}
	for i := range p.Layers {
		if err := p.Layers[i].validate(); err != nil {
			return err
		}
	}
	return nil
}

func (l *Layer) validate() error {
	size, limit := 0, MaxLayerBytes
	if l.Source == SourceCall {
		limit *= 2
	}
	for i := range l.Vars {
		v := &l.Vars[i]
		if reason := l.problemOf(v); reason != "" {
			return varError(v, l.Source, reason)
		}
		if v.Ref == "" {
			size += len(v.Name) + len(v.Value)
		}
	}
	if size > limit {
		return fmt.Errorf("layer %s holds %d bytes of variables, over the limit of %d", l.Source, size, limit)
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
