package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
)

var (
	// variableName matches the names that the API accepts.
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// requestID matches the ids that clients can give calls. Only what JSON carries unchanged is allowed, so two
	// different ids never become one.
	requestID = regexp.MustCompile(`^[!-~]{1,256}$`)
)

// arguments are the arguments of a tool as a client sent them. Each method that reads one also declares it, so that the code that reads
// the arguments of a tool defines their schema. Reading an invalid one records what is valid, and err returns everything recorded. Null
// means absent, and so does an empty value where that has no meaning: models tend to fill in every field.
type arguments struct {
	values map[string]json.RawMessage
	// schema and names are of what was declared.
	schema *jsonschema.Schema
	names  []string
	// errors are the messages, failed the arguments that they are about; unknown says that one of them is about an unknown argument.
	errors  []string
	failed  map[string]bool
	unknown bool
}

// declared returns the arguments that a function reads, without values.
func declared[T any](read func(*arguments) T) *arguments {
	a := &arguments{schema: &jsonschema.Schema{
		Type: "object", Properties: map[string]*jsonschema.Schema{}, AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}}
	read(a)
	a.errors, a.failed = nil, nil
	return a
}

// parse reads the arguments of a JSON object. Only those that the function reads are allowed.
func parse[T any](raw json.RawMessage, read func(*arguments) T) (value T, err error) {
	a := declared(read)
	if a.decode(raw) {
		value = read(a)
	}
	return value, a.err()
}

// decode sets the values. It returns false if the arguments are not an object.
func (a *arguments) decode(raw json.RawMessage) bool {
	if len(bytes.TrimSpace(raw)) == 0 || isNoObject(raw) {
		return true
	}
	if !unmarshal(raw, &a.values) {
		a.fail("arguments", "must be a JSON object with %s", joinNames(a.names))
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(a.values)) {
		switch {
		case !slices.Contains(a.names, name):
			a.unknown = true
			a.fail(bounds.Text(name, 64), "is unknown: use %s", joinNames(a.names))
		case string(a.values[name]) == "null":
			delete(a.values, name)
		}
	}
	return true
}

// declare adds an argument to the schema.
func (a *arguments) declare(name, description string, schema jsonschema.Schema) *jsonschema.Schema {
	schema.Description = description
	if a.schema.Properties[name] == nil {
		a.names = append(a.names, name)
		a.schema.Properties[name] = &schema
	}
	return a.schema.Properties[name]
}

// joinNames lists names for a message.
func joinNames(names []string) string {
	if len(names) == 0 {
		return "no arguments"
	}
	return strings.Join(names, ", ")
}

// maxErrors bounds the messages.
const maxErrors = 10

// fail records an error about an argument, which has one alone: what follows from it would be another.
func (a *arguments) fail(name, format string, args ...any) {
	if a.failed == nil {
		a.failed = map[string]bool{}
	}
	if a.failed[name] {
		return
	}
	a.failed[name] = true
	switch len(a.errors) {
	case maxErrors:
	case maxErrors - 1:
		a.errors = append(a.errors, "there are more errors: correct these first")
	default:
		a.errors = append(a.errors, name+": "+fmt.Sprintf(format, args...))
	}
}

// err returns the recorded errors, nil if there are none.
func (a *arguments) err() error {
	if len(a.errors) == 0 {
		return nil
	}
	return errors.New(strings.Join(a.errors, "\n"))
}

// read decodes an argument into out. It reports whether the argument was present and valid. An empty text is absent where no text is
// meant.
func (a *arguments) read(name, shape string, out any) bool {
	raw, given := a.values[name]
	if !given || unmarshal(raw, out) {
		return given
	}
	if !isBlank(raw) {
		a.fail(name, "must be %s, not %s", shape, kind(raw))
	}
	return false
}

// text reads a string without NUL characters, which no operating system accepts in commands, names and paths.
func (a *arguments) text(name, description string) string {
	text := a.raw(name, description)
	a.checkNUL(name, text)
	return text
}

// raw reads a string with any characters.
func (a *arguments) raw(name, description string) (text string) {
	a.declare(name, description, jsonschema.Schema{Type: "string"})
	a.read(name, "a string", &text)
	a.checkLength(name, name, text)
	return text
}

// require declares that an argument, whose value is given, can't be empty. It says nothing where an unknown argument may have been meant for
// it, or where its value is wrong.
func (a *arguments) require(name, value, what string) string {
	if !slices.Contains(a.schema.Required, name) {
		a.schema.Required = append(a.schema.Required, name)
	}
	if value == "" && !a.unknown && !a.failed[name] {
		a.fail(name, "is required: %s", what)
	}
	return value
}

func (a *arguments) checkNUL(name, text string) {
	if strings.ContainsRune(text, 0) {
		a.fail(name, "must not contain a NUL character")
	}
}

// checkLength looks at the text of an argument, or at a part of it that has a label of its own.
func (a *arguments) checkLength(name, label, text string) {
	most, size := longest[name], utf8.RuneCountInString(text)
	switch {
	case most == maxKernelBytes && len(text) > most:
		a.fail(label, "has %d bytes, and may have %d: pass large data by stdin, or write it to a file first", len(text), most)
	case most > 0 && size > most:
		a.fail(label, "has %d characters, and may have %d", size, most)
	}
}

// texts reads a list of strings.
func (a *arguments) texts(name, description string) (all []string) {
	a.declare(name, description, jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string"}})
	var list []json.RawMessage
	a.read(name, "a list of strings", &list)
	for i, raw := range list {
		if text, ok := a.word(name, fmt.Sprintf("%s[%d]", name, i), raw); ok {
			all = append(all, text)
		}
	}
	return all
}

// word reads an element of a list, or a variable: a string, or the text of a number, true or false. It has a label of its own.
func (a *arguments) word(name, label string, raw json.RawMessage) (text string, ok bool) {
	if text, ok = textOf(raw); !ok {
		text = strings.TrimSpace(string(raw))
		if text == "null" || strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
			a.fail(label, "must be a string, not %s", kind(raw))
			return "", false
		}
	}
	a.checkNUL(label, text)
	a.checkLength(name, label, text)
	return text, true
}

// variables reads environment variables and sorts them by name, so that the same arguments give the same call.
func (a *arguments) variables() (env []v1alpha1.CallEnvVar) {
	a.declare("env", "", jsonschema.Schema{Type: "object"})
	var values map[string]json.RawMessage
	if !isNoObject(a.values["env"]) {
		a.read("env", `an object of names and strings such as {"LANG": "C"}`, &values)
	}
	if len(values) > maxVariables {
		a.fail("env", "has %d variables, and may have %d", len(values), maxVariables)
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		label := "env." + bounds.Text(name, 64)
		text, ok := a.word("env", label, values[name])
		if !ok {
			continue
		}
		if !variableName.MatchString(name) || len(name) > maxVariableName {
			a.fail(label, "is not a valid name: use at most %d letters, digits and underscores, and don't start with a digit", maxVariableName)
		}
		env = append(env, v1alpha1.CallEnvVar{Name: name, Value: text})
	}
	return env
}

// flag reads true or false, nil if absent. As a text it may have upper-case letters.
func (a *arguments) flag(name, description string) *bool {
	a.declare(name, description, jsonschema.Schema{Type: "boolean"})
	if a.has(name) {
		a.values[name] = bytes.ToLower(a.values[name])
	}
	var value bool
	if !a.read(name, "true or false", &value) {
		return nil
	}
	return &value
}

// isSet reports whether a flag is true.
func (a *arguments) isSet(name, description string) bool {
	return ptr.Deref(a.flag(name, description), false)
}

// seconds reads a positive whole number of seconds, nil if absent.
func (a *arguments) seconds(name, description string) *int32 {
	return int32Of(a.whole(name, description, "a whole number of seconds", 1, math.MaxInt32))
}

// number reads a whole number within bounds, nil if absent.
func (a *arguments) number(name, description string, lowest, highest int64) *int64 {
	return a.whole(name, description, "a whole number", lowest, highest)
}

// whole reads a whole number. One that is written as a fraction or with an exponent counts too: 7.0, 1e3. The schema has bounds that
// follow from what the number is for.
func (a *arguments) whole(name, description, shape string, lowest, highest int64) *int64 {
	schema := a.declare(name, description, jsonschema.Schema{Type: "integer", Minimum: new(float64(lowest))})
	if highest < math.MaxInt32 {
		schema.Maximum = new(float64(highest))
	}
	var value float64
	if !a.read(name, shape, &value) {
		return nil
	}
	if value != math.Trunc(value) || value < float64(lowest) || value > float64(highest) {
		a.fail(name, "must be %s, at least %d and at most %d, not %s", shape, lowest, highest, bounds.Text(string(a.values[name]), 40))
		return nil
	}
	return new(int64(value))
}

// int32Of narrows a number whose bounds fit.
func int32Of(value *int64) *int32 {
	if value == nil {
		return nil
	}
	return new(int32(*value))
}

// choice reads one of several words, the first if absent.
func (a *arguments) choice(name, description string, words ...string) string {
	chosen := a.text(name, description)
	if schema := a.schema.Properties[name]; schema.Enum == nil {
		for _, word := range words {
			schema.Enum = append(schema.Enum, word)
		}
	}
	if chosen == "" {
		return words[0]
	}
	chosen = strings.ToLower(chosen)
	if !slices.Contains(words, chosen) {
		a.fail(name, "must be %s, not %q", strings.Join(words, " or "), bounds.Text(chosen, 40))
	}
	return chosen
}

// objectName reads the name of an object of Kubernetes.
func (a *arguments) objectName(name, description, kind, where string) string {
	object := a.text(name, description)
	if object != "" && len(validation.IsDNS1123Subdomain(object)) > 0 {
		a.fail(name, "must be the name of %s, in lower case: %s", kind, where)
	}
	return object
}

func (a *arguments) environment(description string) string {
	return a.objectName("environment", description, "an environment", "list_environments lists them")
}

func (a *arguments) session(description string) string {
	return a.objectName("session", description, "a session", "start_session answers with it")
}

func (a *arguments) requestID(description string) string {
	id := a.raw("request_id", description)
	if id != "" && !requestID.MatchString(id) {
		a.fail("request_id", "must be at most 256 letters, digits and punctuation marks of ASCII, without spaces")
	}
	return id
}

// wait reads how long a tool waits, in seconds if absent.
func (a *arguments) wait(seconds int64) time.Duration {
	asked := a.number("timeout_seconds", fmt.Sprintf("how long to wait, %d if absent", seconds), 0, maxWait)
	return time.Duration(ptr.Deref(asked, seconds)) * time.Second
}

// has reports whether an argument was sent, an empty one too.
func (a *arguments) has(name string) bool {
	_, given := a.values[name]
	return given
}

// maxOffset is the largest offset that a number of JSON holds exactly.
const maxOffset = 1<<53 - 1
