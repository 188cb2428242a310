package guards

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
)

// arguments are the arguments of a tool call. A null counts as absent: models write it for "none".
type arguments struct {
	values map[string]json.RawMessage
	// err is the first mistake that was found in them. What is read after one doesn't count.
	err error
}

func newArguments(tool *v1alpha1.ToolAction) *arguments {
	args := &arguments{}
	if tool.Arguments == nil || len(bytes.TrimSpace(tool.Arguments.Raw)) == 0 {
		return args
	}
	if err := json.Unmarshal(tool.Arguments.Raw, &args.values); err != nil {
		args.fail("the tool's arguments must be a JSON object")
	}
	return args
}

func (a *arguments) fail(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf(format, args...)
	}
}

// first returns the first of the names that has a value.
func (a *arguments) first(names []string) (string, json.RawMessage) {
	for _, name := range names {
		value, ok := a.values[name]
		if ok && !bytes.Equal(bytes.TrimSpace(value), []byte("null")) {
			return name, value
		}
	}
	return "", nil
}

// decode returns what the first of the names that has a value holds, and whether there is one.
func decode[T any](a *arguments, want string, names ...string) (value T, given bool) {
	name, raw := a.first(names)
	if name == "" {
		return value, false
	}
	if json.Unmarshal(raw, &value) != nil {
		a.wrongType(want, name)
	}
	return value, true
}

func (a *arguments) text(names ...string) (value string, given bool) {
	return decode[string](a, "a string", names...)
}

func (a *arguments) texts(name, want string) []string {
	pointers, given := decode[[]*string](a, want, name)
	if !given {
		return nil
	}
	values := make([]string, len(pointers))
	for i, pointer := range pointers {
		if pointer == nil {
			a.wrongType(want, name)
			return nil
		}
		values[i] = *pointer
	}
	return values
}

func (a *arguments) flag(names ...string) bool {
	value, _ := decode[bool](a, "true or false", names...)
	return value
}

func (a *arguments) wholeMilliseconds(names ...string) *time.Duration {
	const want = "a whole number of milliseconds"
	number, given := decode[float64](a, want, names...)
	if number != math.Trunc(number) {
		a.wrongType(want, names...)
	}
	return duration(number, time.Millisecond, given)
}

func (a *arguments) seconds(name string) *time.Duration {
	number, given := decode[float64](a, "a number of seconds", name)
	return duration(number, time.Second, given)
}

// duration converts without overflow; nil for what isn't given.
func duration(number float64, unit time.Duration, given bool) *time.Duration {
	if !given {
		return nil
	}
	limit := time.Duration(math.MaxInt64)
	switch exact := math.Round(number * float64(unit)); {
	case exact <= math.MinInt64:
		limit = math.MinInt64
	case exact < math.MaxInt64:
		limit = time.Duration(exact)
	}
	return &limit
}

// wrongType notes that the first of the names that has a value has one of another type.
func (a *arguments) wrongType(want string, names ...string) {
	name, raw := a.first(names)
	a.fail("argument %s is %s: use %s", name, quote(string(raw)), want)
}
