package mcpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"toolcall.dev/operator/api/v1alpha1"
)

// arguments are the arguments of a tool as a client sent them. Reading an invalid one records what is valid, and err
// returns everything recorded. Null means absent, and so does an empty value where that has no meaning: models tend to
// fill in every field.
type arguments struct {
	values map[string]json.RawMessage
	errors []string
	// unreadable is true if the arguments are not an object. No further errors are recorded then.
	unreadable bool
}

// parse parses a JSON object. Only the known names are allowed.
func parse(raw json.RawMessage, known ...string) *arguments {
	a := &arguments{values: map[string]json.RawMessage{}}
	if len(bytes.TrimSpace(raw)) == 0 {
		return a
	}
	if err := json.Unmarshal(raw, &a.values); err != nil {
		a.fail("arguments", "must be a JSON object with %s", joinNames(known))
		a.unreadable = true
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
		a.fail(truncate(name, 64), "is unknown: use %s", joinNames(known))
	}
	return a
}

// joinNames lists names for a message.
func joinNames(names []string) string {
	if len(names) == 0 {
		return "no arguments"
	}
	return strings.Join(names, ", ")
}

// fail records an error about an argument.
func (a *arguments) fail(name, format string, args ...any) {
	if !a.unreadable {
		a.errors = append(a.errors, name+": "+fmt.Sprintf(format, args...))
	}
}

// err returns the recorded errors, nil if there are none.
func (a *arguments) err() error {
	if len(a.errors) == 0 {
		return nil
	}
	return &failure{reason: v1alpha1.ReasonInvalidArguments, message: strings.Join(a.errors, "\n")}
}

// read decodes an argument into out. It reports whether the argument was present and valid.
func (a *arguments) read(name, shape string, out any) bool {
	raw, given := a.values[name]
	if !given {
		return false
	}
	if err := json.Unmarshal(raw, out); err != nil {
		a.fail(name, "must be %s, not %s", shape, kind(raw))
		return false
	}
	return true
}

// text reads a string without NUL characters, which no operating system accepts in commands, names and paths.
func (a *arguments) text(name string) string {
	text := a.raw(name)
	a.checkNUL(name, text)
	return text
}

// raw reads a string with any characters.
func (a *arguments) raw(name string) (text string) {
	a.read(name, "a string", &text)
	return text
}

func (a *arguments) checkNUL(name, text string) {
	if strings.ContainsRune(text, 0) {
		a.fail(name, "must not contain a NUL character")
	}
}

// texts reads a list of strings.
func (a *arguments) texts(name string) []string {
	var texts []*string
	if !a.read(name, "a list of strings", &texts) {
		return nil
	}
	var all []string
	for i, text := range texts {
		if text == nil {
			a.fail(fmt.Sprintf("%s[%d]", name, i), "must be a string, not null")
			continue
		}
		a.checkNUL(fmt.Sprintf("%s[%d]", name, i), *text)
		all = append(all, *text)
	}
	return all
}

// pairs reads an object whose values are strings.
func (a *arguments) pairs(name string) map[string]string {
	var values map[string]json.RawMessage
	if !a.read(name, `an object of names and strings such as {"LANG": "C"}`, &values) {
		return nil
	}
	pairs := make(map[string]string, len(values))
	for key, raw := range values {
		var text *string
		label := name + "." + truncate(key, 64)
		if json.Unmarshal(raw, &text) != nil || text == nil {
			a.fail(label, "must be a string, not %s", kind(raw))
			continue
		}
		a.checkNUL(label, *text)
		pairs[key] = *text
	}
	slices.Sort(a.errors)
	return pairs
}

// flag reads true or false, nil if absent.
func (a *arguments) flag(name string) *bool {
	var value bool
	if !a.read(name, "true or false", &value) {
		return nil
	}
	return &value
}

// seconds reads a positive whole number of seconds, nil if absent.
func (a *arguments) seconds(name string) *int32 {
	value := a.whole(name, "a whole number of seconds", 1, math.MaxInt32)
	if value == nil {
		return nil
	}
	return new(int32(*value))
}

// number reads a whole number within bounds, nil if absent.
func (a *arguments) number(name string, lowest, highest int64) *int64 {
	return a.whole(name, "a whole number", lowest, highest)
}

// whole reads a whole number. One that is written as a fraction or with an exponent counts too: 7.0, 1e3.
func (a *arguments) whole(name, shape string, lowest, highest int64) *int64 {
	var value float64
	if !a.read(name, shape, &value) {
		return nil
	}
	if value != math.Trunc(value) || value < float64(lowest) || value > float64(highest) {
		a.fail(name, "must be %s, at least %d and at most %d, not %s", shape, lowest, highest, truncate(string(a.values[name]), 40))
		return nil
	}
	return new(int64(value))
}

// choice reads one of several words, the first if absent.
func (a *arguments) choice(name string, words ...string) string {
	chosen := a.text(name)
	if chosen == "" {
		return words[0]
	}
	if !slices.Contains(words, chosen) {
		a.fail(name, "must be %s, not %q", strings.Join(words, " or "), truncate(chosen, 40))
	}
	return chosen
}

// has reports whether an argument was sent, an empty one too.
func (a *arguments) has(name string) bool {
	_, given := a.values[name]
	return given
}

// maxOffset is the largest offset that a number of JSON holds exactly.
const maxOffset = 1<<53 - 1

// kind names the JSON type of a value for a message.
func kind(raw json.RawMessage) string {
	switch raw := bytes.TrimSpace(raw); {
	case len(raw) == 0:
		return "nothing"
	case raw[0] == '"':
		return "a string"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "a list of other values"
	case raw[0] == 't', raw[0] == 'f':
		return "true or false"
	case raw[0] == 'n':
		return "null"
	default:
		return "a number"
	}
}

// truncate keeps the beginning of a text.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
