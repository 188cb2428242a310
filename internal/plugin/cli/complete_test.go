package cli

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func TestSecondsAreWhole(t *testing.T) {
	t.Parallel()
	parse := func(text string, least time.Duration) (got *int32, err error) {
		command := &cobra.Command{}
		AddSecondsFlag(command, &got, "x", "", least)
		err = command.ParseFlags([]string{"--x", text})
		return got, err
	}
	for d, want := range map[time.Duration]int32{0: 0, time.Second: 1, 90 * time.Second: 90, time.Hour: 3600, math.MaxInt32 * time.Second: math.MaxInt32} {
		if got, err := parse(d.String(), 0); err != nil || got == nil || *got != want {
			t.Errorf("%s: %v, %v", d, got, err)
		}
	}
	for _, d := range []time.Duration{-time.Second, time.Millisecond, 1500 * time.Millisecond, (math.MaxInt32 + 1) * time.Second} {
		if _, err := parse(d.String(), 0); err == nil || !strings.Contains(err.Error(), "--x "+d.String()+": must be whole seconds") {
			t.Errorf("%s: %v", d, err)
		}
	}
	for text, want := range map[string]string{"500ms": "--x 500ms: must be at least 1s", "0": "--x 0s: must be at least 1s", "soon": `--x: time: invalid duration "soon"`} {
		if _, err := parse(text, time.Second); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
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
