package result

import (
	"testing"
	"time"
)

func TestOutputReadsAsSpecified(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stdout, stderr string
		exit           *int32
		took           time.Duration
		want           string
	}{
		"stdout alone":              {"hello", "", Exit(0), 1500 * time.Millisecond, "hello\n\nTook 1.5s"},
		"stdout that ends its line": {"hello\n", "", Exit(0), 0, "hello\n\nTook 0.0s"},
		"stderr alone":              {"", "oops", Exit(0), 0, "oops\n\nTook 0.0s"},
		"both":                      {"out", "err", Exit(0), 0, "out\nerr\n\nTook 0.0s"},
		"both, literally a newline": {"out\n", "err\n", Exit(0), 0, "out\n\nerr\n\nTook 0.0s"},
		"nothing":                   {"", "", Exit(0), 0, "(no output)\n\nTook 0.0s"},
		"a failure":                 {"out", "", Exit(3), 0, "out\n\nCommand exited with code 3\n\nTook 0.0s"},
		"a failure after a newline": {"out\n", "", Exit(3), 0, "out\n\nCommand exited with code 3\n\nTook 0.0s"},
		"a silent failure":          {"", "", Exit(1), 0, "(no output)\n\nCommand exited with code 1\n\nTook 0.0s"},
		"a timeout":                 {"part", "", Exit(-1), 2 * time.Second, "part\n\nCommand exited with code -1\n\nTook 2.0s"},
		"no exit code":              {"part", "", nil, 2 * time.Second, "part\n\nTook 2.0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Output(c.stdout, c.stderr, c.exit, c.took); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestTookRoundsBeforeItSplits(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]string{
		-time.Second:                 "Took 0.0s",
		49 * time.Millisecond:        "Took 0.0s",
		50 * time.Millisecond:        "Took 0.1s",
		59949 * time.Millisecond:     "Took 59.9s",
		59960 * time.Millisecond:     "Took 1m 0.0s",
		time.Minute:                  "Took 1m 0.0s",
		125 * time.Second:            "Took 2m 5.0s",
		119960 * time.Millisecond:    "Took 2m 0.0s",
		61*time.Minute + time.Second: "Took 61m 1.0s",
	} {
		if got := Took(took); got != want {
			t.Errorf("%v: got %q, want %q", took, got, want)
		}
	}
}
