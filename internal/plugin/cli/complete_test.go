package cli

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestSecondsAreWhole(t *testing.T) {
	t.Parallel()
	set := func(string) bool { return true }
	for d, want := range map[time.Duration]int32{0: 0, time.Second: 1, 90 * time.Second: 90, time.Hour: 3600, math.MaxInt32 * time.Second: math.MaxInt32} {
		var got *int32
		if err := SetSeconds(&got, "x", d, set); err != nil || *got != want {
			t.Errorf("%s: %d, %v", d, got, err)
		}
	}
	for _, d := range []time.Duration{-time.Second, time.Millisecond, 1500 * time.Millisecond, (math.MaxInt32 + 1) * time.Second} {
		var got *int32
		if err := SetSeconds(&got, "x", d, set); err == nil || !strings.Contains(err.Error(), "--x "+d.String()) {
			t.Errorf("%s: %v", d, err)
		}
	}
}

func TestArgumentsOfCommands(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args           []string
		call           bool
		environmentsOK bool
	}{
		"none":         {nil, false, false},
		"one":          {[]string{"a"}, true, true},
		"two":          {[]string{"a", "b"}, false, true},
		"an empty one": {[]string{""}, false, false},
		"one empty":    {[]string{"a", ""}, false, false},
	} {
		if got := RequireCall(nil, c.args) == nil; got != c.call {
			t.Errorf("%s as a call: %t", name, got)
		}
		if got := RequireEnvironments(nil, c.args) == nil; got != c.environmentsOK {
			t.Errorf("%s as environments: %t", name, got)
		}
	}
}
