package redact

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Bounds of the values of one Matcher.
const (
	// MinLength is the length of the shortest value that is matched. Shorter ones occur by chance.
	MinLength      = 8
	MaxValues      = 320
	MaxLength      = 64 << 10
	MaxTotalLength = 256 << 10
	maxNameLength  = 256
)

// Value is a known value. It never prints its bytes.
type Value struct {
	// Name is in the mark: 1 to 256 letters, digits, '.', '_' and '-'.
	Name  string
	Value []byte
	// Foreign says that who writes the text wasn't given the value. What is held back doesn't tell anything of it.
	Foreign bool
}

// Format prints the name alone.
func (v Value) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "redact.Value(%q)", v.Name) }

// MarshalJSON refuses: a value has no place in a document.
func (v Value) MarshalJSON() ([]byte, error) {
	return nil, errors.New("a known value can't be written as JSON")
}

func checkValues(values []Value) error {
	if len(values) > MaxValues {
		return fmt.Errorf("there are %d values to redact; at most %d are possible", len(values), MaxValues)
	}
	total := 0
	for i := range values {
		v := &values[i]
		if !isName(v.Name) {
			return fmt.Errorf("value %d to redact has a name that isn't 1 to %d letters, digits, '.', '_' and '-'", i, maxNameLength)
		}
		if len(v.Value) > MaxLength {
			return fmt.Errorf("the value %q to redact has %d bytes; at most %d are possible", v.Name, len(v.Value), MaxLength)
		}
		total += len(v.Value)
	}
	if total > MaxTotalLength {
		return fmt.Errorf("the values to redact have %d bytes together; at most %d are possible", total, MaxTotalLength)
	}
	return nil
}

func isName(name string) bool {
	if name == "" || len(name) > maxNameLength {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// minLine is the length of the shortest line of a foreign value that is matched by itself.
const minLine = 16

// formsOf returns what is looked for in place of a value, with the lines of a foreign one.
func formsOf(v *Value) [][]byte {
	list := forms(v.Value)
	if !v.Foreign || len(list) == 0 || bytes.IndexByte(list[0], '\n') < 0 {
		return list
	}
	for line := range bytes.Lines(list[0]) {
		if line = bytes.TrimSpace(line); len(line) >= minLine && !isBoundary(line) {
			list = append(list, forms(line)...)
		}
	}
	return list
}

// isBoundary reports whether a line is the first or the last of a key in PEM. Public certificates have the same ones.
func isBoundary(line []byte) bool {
	isFirst, isLast := bytes.HasPrefix(line, []byte("-----BEGIN ")), bytes.HasPrefix(line, []byte("-----END "))
	return (isFirst || isLast) && bytes.HasSuffix(line, []byte("-----"))
}

// forms returns what is looked for in place of a value: nothing for one that is too short.
func forms(value []byte) [][]byte {
	value = bytes.Trim(value, "\r\n")
	if len(value) < MinLength {
		return nil
	}
	list := [][]byte{value}
	add := func(form []byte) {
		isKnown := slices.ContainsFunc(list, func(one []byte) bool { return bytes.Equal(one, form) })
		if !isKnown && len(form) >= MinLength {
			list = append(list, form)
		}
	}
	if bytes.IndexByte(value, '\n') >= 0 {
		lines := bytes.ReplaceAll(value, []byte("\r\n"), []byte("\n"))
		add(lines)
		add(bytes.ReplaceAll(lines, []byte("\n"), []byte("\r\n")))
	}
	if bytes.ContainsAny(value, " \t\n") {
		add(bytes.Join(bytes.Fields(value), []byte(" ")))
	}
	add(percentDecoded(value))
	if !utf8.Valid(value) {
		add(asLatin1(value))
		if form, isKnown := withReplacements(value); isKnown {
			add(form)
		}
	}
	return list
}

func percentDecoded(value []byte) []byte {
	var out []byte
	for i := 0; i < len(value); i++ {
		if b, ok := percentByte(value[i:]); ok {
			out = append(out, b)
			i += 2
			continue
		}
		out = append(out, value[i])
	}
	return out
}

// asLatin1 is what a program writes that reads each byte as a character.
func asLatin1(value []byte) []byte {
	var out []byte
	for _, c := range value {
		out = utf8.AppendRune(out, rune(c))
	}
	return out
}

// withReplacements has U+FFFD for each invalid byte, as encoding/json does. isKnown says that enough bytes are left to
// know the value by them.
func withReplacements(value []byte) (out []byte, isKnown bool) {
	known := 0
	for len(value) > 0 {
		r, size := utf8.DecodeRune(value)
		if r != utf8.RuneError || size > 1 {
			known += size
		}
		out = utf8.AppendRune(out, r)
		value = value[size:]
	}
	return out, known >= MinLength
}
