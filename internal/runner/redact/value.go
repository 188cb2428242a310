package redact

import (
	"errors"
	"fmt"
)

// Bounds of the values of one Matcher.
const (
	// MinLength is the length of the shortest value that is matched. Shorter ones occur by chance.
	MinLength = 8
	MaxValues = 320
	// MaxLength is that of the longest variable. For MaxTotalLength of values, New takes about a second, and up to 100 MiB of memory.
	MaxLength      = 128 << 10
	MaxTotalLength = 256 << 10
)

// Value is a known value. It never prints its bytes.
type Value struct {
	// Name is in the mark: that of a variable.
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
