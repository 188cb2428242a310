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
}

func newArguments(tool *v1alpha1.ToolAction) (*arguments, error) {
	args := &arguments{}
	if tool.Arguments == nil || len(bytes.TrimSpace(tool.Arguments.Raw)) == 0 {
		return args, nil
	}
	if err := json.Unmarshal(tool.Arguments.Raw, &args.values); err != nil {
		return nil, fmt.Errorf("the tool's arguments must be a JSON object")
	}
	return args, nil
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

func (a *arguments) text(names ...string) (value string, given bool, err error) {
	name, raw := a.first(names)
	if name == "" {
		return "", false, nil
	}
	if json.Unmarshal(raw, &value) != nil {
		return "", true, wrongType(name, raw, "a string")
	}
	return value, true, nil
}

func (a *arguments) texts(names ...string) ([]string, error) {
	name, raw := a.first(names)
	if name == "" {
		return nil, nil
	}
	var pointers []*string
	if json.Unmarshal(raw, &pointers) != nil {
		return nil, wrongType(name, raw, "an array of strings")
	}
	values := make([]string, len(pointers))
	for i, pointer := range pointers {
		if pointer == nil {
			return nil, wrongType(name, raw, "an array of strings")
		}
		values[i] = *pointer
	}
	return values, nil
}

func (a *arguments) flag(names ...string) (value bool, err error) {
	name, raw := a.first(names)
	if name == "" {
		return false, nil
	}
	if json.Unmarshal(raw, &value) != nil {
		return false, wrongType(name, raw, "true or false")
	}
	return value, nil
}

func (a *arguments) wholeMilliseconds(names ...string) (*time.Duration, error) {
	name, raw := a.first(names)
	if name == "" {
		return nil, nil
	}
	var number float64
	if json.Unmarshal(raw, &number) != nil || number != math.Trunc(number) {
		return nil, wrongType(name, raw, "a whole number of milliseconds")
	}
	return clampDuration(number, time.Millisecond), nil
}

func (a *arguments) seconds(name string) (*time.Duration, error) {
	name, raw := a.first([]string{name})
	if name == "" {
		return nil, nil
	}
	var number float64
	if json.Unmarshal(raw, &number) != nil {
		return nil, wrongType(name, raw, "a number of seconds")
	}
	return clampDuration(number, time.Second), nil
}

// clampDuration converts without overflow.
func clampDuration(number float64, unit time.Duration) *time.Duration {
	limit := time.Duration(math.MaxInt64)
	switch nanoseconds := math.Round(number * float64(unit)); {
	case nanoseconds <= math.MinInt64:
		limit = math.MinInt64
	case nanoseconds < math.MaxInt64:
		limit = time.Duration(nanoseconds)
	}
	return &limit
}

func wrongType(name string, raw json.RawMessage, want string) error {
	return fmt.Errorf("argument %s is %s: use %s", name, quote(string(raw)), want)
}
