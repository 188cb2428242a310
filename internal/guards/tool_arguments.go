package guards

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
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
	number, ok := parseNumber(raw)
	if !ok || !number.IsInt() {
		return nil, wrongType(name, raw, "a whole number of milliseconds")
	}
	return clampDuration(number, time.Millisecond), nil
}

func (a *arguments) seconds(name string) (*time.Duration, error) {
	name, raw := a.first([]string{name})
	if name == "" {
		return nil, nil
	}
	number, ok := parseNumber(raw)
	if !ok {
		return nil, wrongType(name, raw, "a number of seconds")
	}
	return clampDuration(number, time.Second), nil
}

// parseNumber reads a JSON number exactly. Exponents are bounded first, so that 1e999999999 costs nothing.
func parseNumber(raw json.RawMessage) (*big.Rat, bool) {
	var number float64
	if json.Unmarshal(raw, &number) != nil {
		return nil, false
	}
	if math.Abs(number) > 1e30 || (number != 0 && math.Abs(number) < 1e-30) || len(raw) > 64 {
		exact := new(big.Rat).SetFloat64(number)
		return exact, exact != nil
	}
	return new(big.Rat).SetString(string(bytes.TrimSpace(raw)))
}

// clampDuration converts without overflow.
func clampDuration(number *big.Rat, unit time.Duration) *time.Duration {
	product := new(big.Rat).Mul(number, new(big.Rat).SetInt64(int64(unit)))
	nanoseconds := new(big.Int).Quo(product.Num(), product.Denom())
	limit := time.Duration(math.MaxInt64)
	switch {
	case nanoseconds.IsInt64():
		limit = time.Duration(nanoseconds.Int64())
	case nanoseconds.Sign() < 0:
		limit = math.MinInt64
	}
	return &limit
}

func wrongType(name string, raw json.RawMessage, want string) error {
	return fmt.Errorf("argument %s is %s: use %s", name, quote(string(raw)), want)
}
