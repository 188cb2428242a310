package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// A question may execute the program that is asked, and read and write what every program may.
func TestTheDomainOfAQuestionIsNarrowerThanAnyCalls(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path, other := filepath.Join(dir, "busybox"), filepath.Join(dir, "other")
	for _, file := range []string{path, other} {
		if err := os.WriteFile(file, []byte("a program"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d := &Domain{way: rules.Way{Landlock: supportOnce().LandlockABI}, rules: &rules.Rules{
		Connections: true, WritePaths: []string{"/tmp"}, Programs: &rules.Programs{Allowed: []string{path, other, dir + "/", "sh"}, AllowWritable: true},
	}}
	if d.way.Landlock < rules.ABITruncate {
		t.Skip("the kernel has no Landlock that holds paths")
	}
	defer d.Close()
	if err := d.prepare("/bin"); err != nil {
		t.Fatal(err)
	}
	asks := 0
	_, err = d.AskMultiCall(func(asked *Domain, argv []string) result.Outcome {
		defer asked.Close()
		if asks++; !asked.Allows(path) || asked.Allows(other) || asked.Allows("/bin/sh") || asked.rules.Connections {
			t.Errorf("it may execute other programs than %s, or connect", path)
		}
		i := asked.Isolation()
		if !i.Programs || !i.Reads || !i.Writes || len(asked.writePaths) == 0 || slices.ContainsFunc(asked.writePaths, func(path string) bool { return !strings.HasPrefix(path, "/dev/") }) {
			t.Errorf("%+v, it may write to %q", i, asked.writePaths)
		}
		if !slices.Equal(i.NamesOnly, result.Paths{path}) {
			t.Errorf("the names of %q are looked at", i.NamesOnly)
		}
		if argv[0] != path {
			t.Errorf("it is called as %q", argv)
		}
		return result.Outcome{Started: true, Reason: result.Completed}
	})
	if err != nil || asks == 0 {
		t.Fatal(asks, err)
	}
}
