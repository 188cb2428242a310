package plugin

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"toolcall.dev/operator/internal/testing/plugintest"
)

const sample = `default_env = "dev"
[tools]
allow_shell_mode = true
[[environments]]
name = "dev"
cwd = "/workspace"
`

// run returns standard output, standard error, and whether the command succeeded.
func run(stdin string, args ...string) (stdout, stderr string, ok bool) {
	var out, errs bytes.Buffer
	code := plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &out, ErrOut: &errs}).Execute(args)
	return out.String(), errs.String(), code == 0
}

func TestConvertPrintsManifests(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "agent.toml")
	if err := os.WriteFile(file, []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	want := `apiVersion: toolcall.dev/v1alpha1
kind: ExecutionPolicy
metadata:
  name: strict
spec:
  shell:
    enabled: true
---
apiVersion: toolcall.dev/v1alpha1
kind: ExecutionEnvironment
metadata:
  annotations:
    toolcall.dev/is-default-environment: "true"
  name: dev
  namespace: agents
spec:
  image: i:1
  policyRef:
    name: strict
  workingDir: /workspace
`
	for _, name := range []string{"-", file} {
		stdout, stderr, ok := run(sample, "convert", "-f", name, "-n", "agents", "--image", "i:1", "--policy-name=strict")
		if !ok || stdout != want {
			t.Errorf("-f %s: got %v, %s\n%s", name, ok, stdout, stderr)
		}
		if !strings.Contains(stderr, "note: environments: converted to ExecutionEnvironments: 1\n") {
			t.Errorf("-f %s: standard error is %s", name, stderr)
		}
	}
}

func TestConvertFailsWithNothingOnStandardOutput(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, stdin string
		args        []string
		want        string
	}{
		{"without a file", sample, []string{"--image=i"}, "error: specify the TOML file with --filename (-f)"},
		{"with a file that isn't there", sample, []string{"-f", "testdata/none", "--image=i"}, "no such file"},
		{"with a directory", sample, []string{"-f", ".", "--image=i"}, "is a directory"},
		{"without an image", sample, []string{"-f-"}, "set it with --image\nerror: nothing was converted"},
		{"with arguments", sample, []string{"-f-", "--image=i", "agent.toml"}, `"agent.toml": kubectl toolcall convert takes no arguments, only flags`},
		{"with bad TOML", "a = 1\n[b", []string{"-f-"}, "error: -: line 2, column 2: "},
		{"with an endless document", strings.Repeat("#\n", 1<<20), []string{"-f-"}, "error: -: the document is longer than 524288 bytes"},
		{"with an unknown flag", sample, []string{"--x"}, "unknown flag: --x"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, ok := run(c.stdin, append([]string{"convert"}, c.args...)...)
			if ok || stdout != "" || !strings.Contains(stderr, c.want) {
				t.Errorf("got %v, %q, %s", ok, stdout, stderr)
			}
		})
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("pipe closed") }

func TestConvertFailsWhenItsOutputIsLost(t *testing.T) {
	t.Parallel()
	o := convertOptions{filename: "-"}
	o.Image = "i"
	if err := o.run(strings.NewReader(sample), brokenWriter{}, new(bytes.Buffer)); err == nil {
		t.Error("no error")
	}
}

func TestHelpHasTheNameOfThePlugin(t *testing.T) {
	t.Parallel()
	stdout, _, ok := run("", "convert", "--help")
	if !ok || !strings.Contains(stdout, "kubectl toolcall convert -f FILE") {
		t.Errorf("got %v, %s", ok, stdout)
	}
}
