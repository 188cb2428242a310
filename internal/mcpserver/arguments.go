package mcpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// arguments are a tool's arguments as a client sent them. Reading one that is wrong notes what would be right;
// err has all the notes. A null counts as absent, and so does, where it says nothing, an empty value: models
// like to fill in every field.
type arguments struct {
	values map[string]json.RawMessage
	wrong  []string
	// broken says that there was nothing to read, so that there is nothing more to say.
	broken bool
}

// parse takes the JSON object apart. Every name must be one of the known.
func parse(raw json.RawMessage, known ...string) *arguments {
	a := &arguments{values: map[string]json.RawMessage{}}
	if len(bytes.TrimSpace(raw)) == 0 {
		return a
	}
	if err := json.Unmarshal(raw, &a.values); err != nil {
		a.note("arguments", "must be a JSON object with %s", list(known))
		a.broken = true
		return a
	}
	var unknown []string
	for name, value := range a.values {
		switch {
		case !slices.Contains(known, name):
			unknown = append(unknown, name)
		case string(value) == "null":
			delete(a.values, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		a.note(shorten(name, 64), "is not known here: use %s", list(known))
	}
	return a
}

func list(names []string) string {
	if len(names) == 0 {
		return "no arguments"
	}
	return strings.Join(names, ", ")
}

func (a *arguments) note(name, format string, args ...any) {
	if !a.broken {
		a.wrong = append(a.wrong, name+": "+fmt.Sprintf(format, args...))
	}
}

// err is nil when nothing was wrong.
func (a *arguments) err() error {
	if len(a.wrong) == 0 {
		return nil
	}
	return &refusal{reason: reasonInvalidArguments, message: strings.Join(a.wrong, "\n"), retrySafe: true}
}

// read decodes a value into out; it says whether there was one that fits.
func (a *arguments) read(name, shape string, out any) bool {
	raw, given := a.values[name]
	if !given {
		return false
	}
	if err := json.Unmarshal(raw, out); err != nil {
		a.note(name, "must be %s, not %s", shape, kind(raw))
		return false
	}
	return true
}

// text is a string, empty when absent. No operating system takes a NUL in what this is used for.
func (a *arguments) text(name string) string {
	text := a.raw(name)
	a.checkNUL(name, text)
	return text
}

// raw is a string that may hold anything.
func (a *arguments) raw(name string) (text string) {
	a.read(name, "a string", &text)
	return text
}

func (a *arguments) checkNUL(name, text string) {
	if strings.ContainsRune(text, 0) {
		a.note(name, "must not hold a NUL character")
	}
}

// texts is a list of strings.
func (a *arguments) texts(name string) []string {
	var texts []*string
	if !a.read(name, "a list of strings", &texts) {
		return nil
	}
	var all []string
	for i, text := range texts {
		if text == nil {
			a.note(fmt.Sprintf("%s[%d]", name, i), "must be a string, not null")
			continue
		}
		a.checkNUL(fmt.Sprintf("%s[%d]", name, i), *text)
		all = append(all, *text)
	}
	return all
}

// pairs is an object whose values are strings.
func (a *arguments) pairs(name string) map[string]string {
	var values map[string]json.RawMessage
	if !a.read(name, `an object of names and strings such as {"LANG": "C"}`, &values) {
		return nil
	}
	pairs := make(map[string]string, len(values))
	for key, raw := range values {
		var text *string
		label := name + "." + shorten(key, 64)
		if json.Unmarshal(raw, &text) != nil || text == nil {
			a.note(label, "must be a string, not %s", kind(raw))
			continue
		}
		a.checkNUL(label, *text)
		pairs[key] = *text
	}
	slices.Sort(a.wrong)
	return pairs
}

// flag is true or false, nil when absent.
func (a *arguments) flag(name string) *bool {
	var value bool
	if !a.read(name, "true or false", &value) {
		return nil
	}
	return &value
}

// seconds is a whole number of seconds from 1 on, nil when absent.
func (a *arguments) seconds(name string) *int32 {
	var value float64
	if !a.read(name, "a whole number of seconds", &value) {
		return nil
	}
	if value != math.Trunc(value) || value < 1 || value > math.MaxInt32 {
		a.note(name, "must be a whole number of seconds, at least 1 and at most %d, not %s", math.MaxInt32, shorten(string(a.values[name]), 40))
		return nil
	}
	seconds := int32(value)
	return &seconds
}

// kind names the JSON type of a value.
func kind(raw json.RawMessage) string {
	switch raw := bytes.TrimSpace(raw); {
	case len(raw) == 0:
		return "nothing"
	case raw[0] == '"':
		return "a string"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "a list that holds something else"
	case raw[0] == 't', raw[0] == 'f':
		return "true or false"
	case raw[0] == 'n':
		return "null"
	default:
		return "a number"
	}
}

// shorten keeps the beginning of a text.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
