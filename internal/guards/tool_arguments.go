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
	name, raw := a.first(names)
	if name == "" {
		return nil
	}
	number, ok := parseNumber(raw)
	if !ok || !number.IsInt() {
		a.wrongType("a whole number of milliseconds", name)
		return nil
	}
	return clampDuration(number, time.Millisecond)
}

func (a *arguments) seconds(name string) *time.Duration {
	name, raw := a.first([]string{name})
	if name == "" {
		return nil
	}
	number, ok := parseNumber(raw)
	if !ok {
		a.wrongType("a number of seconds", name)
		return nil
	}
	return clampDuration(number, time.Second)
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

// wrongType notes that the first of the names that has a value has one of another type.
func (a *arguments) wrongType(want string, names ...string) {
	name, raw := a.first(names)
	a.fail("argument %s is %s: use %s", name, quote(string(raw)), want)
}
