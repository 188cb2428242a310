package plugin

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestSecondsAreWhole(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int32{0: 0, time.Second: 1, 90 * time.Second: 90, time.Hour: 3600, math.MaxInt32 * time.Second: math.MaxInt32} {
		if got, err := seconds("x", d); err != nil || got != want {
			t.Errorf("%s: %d, %v", d, got, err)
		}
	}
	for _, d := range []time.Duration{-time.Second, time.Millisecond, 1500 * time.Millisecond, (math.MaxInt32 + 1) * time.Second} {
		if _, err := seconds("x", d); err == nil || !strings.Contains(err.Error(), "--x "+d.String()) {
			t.Errorf("%s: %v", d, err)
		}
	}
}

func TestTextsAreReadUpToALimit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"nothing":         {"", ""},
		"up to the limit": {"12345678", ""},
		"one byte more":   {"123456789", "the input is longer than 8 bytes"},
		"characters":      {"äöü", ""},
		"a cut character": {"ä\xc3", "the input is not UTF-8 text"},
		"bytes":           {"\xff", "base64"},
		"a NUL":           {"a\x00b", ""},
	} {
		got, err := readText("the input", strings.NewReader(c.text), 8)
		if c.want == "" && (err != nil || got != c.text) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	broken := errors.New("broken")
	if _, err := readText("the input", iotest.ErrReader(broken), 8); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// A file as long as the API allows is sent, one byte more is not.
func TestTheLongestFile(t *testing.T) {
	t.Parallel()
	config, file := offline(t), filepath.Join(t.TempDir(), "long")
	for extra, want := range map[int]int{0: 0, 1: 125} {
		if err := os.WriteFile(file, []byte(strings.Repeat("#", v1alpha1.MaxSourceBytes+extra)), 0o600); err != nil {
			t.Fatal(err)
		}
		out, errs, code := command("", "--kubeconfig", config, "run", "--dry-run", "--code", "python", "-f", file)
		if code != want || (code == 0) != strings.Contains(out, "language: python") {
			t.Errorf("%d bytes more: exit code %d, %.200s", extra, code, errs)
		}
	}
}

// Flags after the program are the program's own.
func TestFlagsOfTheProgram(t *testing.T) {
	t.Parallel()
	config := offline(t)
	for line, want := range map[string]string{
		"ls -l --env x":                 "--env",
		"-- ls --dry-run":               "--dry-run",
		"--environment zone ls --env x": "name: zone",
	} {
		args := append([]string{"--kubeconfig", config, "run", "--dry-run"}, strings.Fields(line)...)
		if out, errs, code := command("", args...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d\n%s%s", line, code, out, errs)
		}
	}
}

func TestArgumentsOfCommands(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args           []string
		call, calls    bool
		environmentsOK bool
	}{
		"none":         {nil, false, false, false},
		"one":          {[]string{"a"}, true, true, true},
		"two":          {[]string{"a", "b"}, false, true, true},
		"an empty one": {[]string{""}, false, false, false},
		"one empty":    {[]string{"a", ""}, false, false, false},
	} {
		if got := requireCall(nil, c.args) == nil; got != c.call {
			t.Errorf("%s as a call: %t", name, got)
		}
		if got := (&callTargets{}).args(nil, c.args) == nil; got != c.calls {
			t.Errorf("%s as calls: %t", name, got)
		}
		if got := requireEnvironments(nil, c.args) == nil; got != c.environmentsOK {
			t.Errorf("%s as environments: %t", name, got)
		}
	}
}
