package calls

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/testing/plugintest"
)

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
	config, file := plugintest.Offline(t), filepath.Join(t.TempDir(), "long")
	for extra, want := range map[int]int{0: 0, 1: 125} {
		if err := os.WriteFile(file, []byte(strings.Repeat("#", v1alpha1.MaxSourceBytes+extra)), 0o600); err != nil {
			t.Fatal(err)
		}
		out, errs, code := plugintest.Run("", "--kubeconfig", config, "run", "--dry-run", "--code", "python", "-f", file)
		if code != want || (code == 0) != strings.Contains(out, "language: python") {
			t.Errorf("%d bytes more: exit code %d, %.200s", extra, code, errs)
		}
	}
}

func TestFlagsBecomeACall(t *testing.T) {
	t.Parallel()
	config := plugintest.Offline(t)
	script := filepath.Join(t.TempDir(), "script.py")
	if err := os.WriteFile(script, []byte("print(1)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	structured := func(binary string, args ...string) v1alpha1.ToolCallSpec {
		return v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: binary, Args: args}}
	}
	full := structured("git", "-C", "x", "status")
	full.EnvironmentRef, full.SkillRef = &v1alpha1.LocalReference{Name: "repo"}, &v1alpha1.LocalReference{Name: "review"}
	full.WorkingDir, full.Trusted, full.Stdin = "/workspace/x", true, "in\n"
	full.Env = []v1alpha1.CallEnvVar{{Name: "A", Value: "1=2,3"}, {Name: "B", Value: ""}}
	full.Collect = []string{"out/*.txt", "{a,b}"}
	full.Network = &v1alpha1.CallNetwork{Hosts: []string{"a.example.com", "*.b.example.com", "2001:db8::/32"}}
	full.TimeoutSeconds, full.TTLSecondsAfterFinished = ptr.To(int32(90)), ptr.To(int32(0))
	inSession, background := structured("ls"), structured("ls")
	inSession.SessionRef, inSession.WorkingDir = &v1alpha1.SessionReference{Name: "dev"}, "x"
	background.SessionRef, background.Background = inSession.SessionRef, true
	networked := v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: "python", Source: "in\n", NetworkAccess: ptr.To(true)}}
	tool := v1alpha1.ToolCallSpec{Tool: &v1alpha1.ToolAction{Name: "bash", Arguments: &runtime.RawExtension{Raw: []byte(`{"command":"ls"}`)}}}
	cases := map[string]struct {
		args []string
		want v1alpha1.ToolCallSpec
	}{
		"a program":                        {[]string{"--", "git", "status"}, structured("git", "status")},
		"a program without the dashes":     {[]string{"git", "log", "-3", "--env", "x"}, structured("git", "log", "-3", "--env", "x")},
		"an argument of two dashes":        {[]string{"--", "git", "checkout", "--", "x"}, structured("git", "checkout", "--", "x")},
		"a shell line":                     {[]string{"--shell", "a | b"}, v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "a | b"}}},
		"a snippet from a file":            {[]string{"--code", "python", "-f", script}, v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: "python", Source: "print(1)\n"}}},
		"a snippet from standard input":    {[]string{"--code", "python", "-f", "-", "--network"}, networked},
		"a model's tool call":              {[]string{"--tool", "bash", "--arguments", `{"command": "ls"}`}, tool},
		"a call in a session":              {strings.Split("--session dev -w x -- ls", " "), inSession},
		"a server":                         {strings.Split("--session dev --background -- ls", " "), background},
		"everything that a call can carry": {strings.Split("--environment repo --skill review -w /workspace/x -e A=1=2,3 -e B= --collect out/*.txt --collect {a,b} --network-host a.example.com --network-host *.b.example.com --network-host=2001:db8::/32 --timeout 1m30s --ttl 0s --stdin --trusted -- git -C x status", " "), full},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, errs, code := plugintest.Run("in\n", append([]string{"--kubeconfig", config, "run", "--dry-run", "-o", "yaml"}, c.args...)...)
			call := &v1alpha1.ToolCall{}
			if code != 0 || yaml.UnmarshalStrict([]byte(out), call) != nil {
				t.Fatalf("exit code %d, %s%s", code, out, errs)
			}
			if diff := cmp.Diff(c.want, call.Spec); diff != "" || call.Namespace != "agents" || call.GenerateName != "run-" {
				t.Errorf("(-want +got):\n%s%s", diff, out)
			}
		})
	}
}

func TestRunLabelsTheCall(t *testing.T) {
	t.Parallel()
	out, errs, code := plugintest.Run("", "--kubeconfig", plugintest.Offline(t), "run", "--dry-run", "-o", "yaml", "-l", "a=1,b=2", "--labels", "c=", "--", "ls")
	call := &v1alpha1.ToolCall{}
	if code != 0 || yaml.UnmarshalStrict([]byte(out), call) != nil {
		t.Fatalf("exit code %d, %s%s", code, out, errs)
	}
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "2", "c": ""}, call.Labels); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestInvalidFlags(t *testing.T) {
	t.Parallel()
	config := plugintest.Offline(t)
	cases := map[string]struct {
		args  []string
		stdin string
		want  string
	}{
		"nothing to run":               {nil, "", "specify what to run"},
		"two things to run":            {[]string{"--shell", "a", "--", "b"}, "", "in exactly one way"},
		"a snippet without a file":     {[]string{"--code", "python"}, "", "--filename (-f)"},
		"a file without a language":    {[]string{"-f", "x", "--", "ls"}, "", "only be used with --code"},
		"a file that isn't there":      {[]string{"--code", "python", "-f", "/nowhere/x"}, "", "no such file"},
		"standard input twice":         {[]string{"--code", "python", "-f", "-", "--stdin"}, "", "not both"},
		"arguments without a tool":     {[]string{"--arguments", "{}", "--", "ls"}, "", "only be used with --tool"},
		"arguments that aren't JSON":   {[]string{"--tool", "bash", "--arguments", "ls"}, "", "JSON object"},
		"arguments that are a list":    {[]string{"--tool", "bash", "--arguments", "[]"}, "", "JSON object"},
		"a variable without a value":   {[]string{"-e", "A", "--", "ls"}, "", "NAME=VALUE"},
		"an empty host":                {[]string{"--network-host", "", "--", "ls"}, "", "--network-host: it is empty: name a host, such as packages.example.com"},
		"a URL as a host":              {[]string{"--network-host", "a.example.com", "--network-host", "https://b.example.com/", "--", "ls"}, "", `"https://b.example.com/" is a URL`},
		"two hosts as one":             {[]string{"--network-host", "a.example.com,b.example.com", "--", "ls"}, "", `it contains ','`},
		"a host of the cloud":          {[]string{"--network-host", "169.254.169.254", "--", "ls"}, "", "--network-host: 169.254.169.254 is a metadata address, which no policy allows"},
		"a label without a value":      {[]string{"-l", "team", "--", "ls"}, "", "key=value"},
		"a timeout of a half second":   {[]string{"--timeout", "500ms", "--", "ls"}, "", "at least 1s"},
		"a timeout of a fraction":      {[]string{"--timeout", "1500ms", "--", "ls"}, "", "whole seconds"},
		"a negative time to live":      {[]string{"--ttl", "-1s", "--", "ls"}, "", "whole seconds"},
		"input that isn't text":        {[]string{"--stdin", "--", "cat"}, "\xff\xfe", "base64"},
		"a line that isn't text":       {[]string{"--shell", "rm caf\xe9"}, "", "the line is not UTF-8 text"},
		"an argument that isn't text":  {[]string{"--", "rm", "caf\xe9"}, "", `"caf\xe9" is not UTF-8 text`},
		"a variable that isn't text":   {[]string{"-e", "A=\xff", "--", "ls"}, "", `-e "A=\xff" is not UTF-8 text`},
		"a directory that isn't text":  {[]string{"-w", "\xff", "--", "ls"}, "", "is not UTF-8 text"},
		"arguments that aren't text":   {[]string{"--tool", "bash", "--arguments", "{\"command\": \"\xff\"}"}, "", "is not UTF-8 text"},
		"input without end":            {[]string{"--stdin", "--", "cat"}, strings.Repeat("x", maxStdin+1), "longer than 524288 bytes"},
		"an unknown way to show":       {[]string{"--live=sometimes", "--", "ls"}, "", "always or never"},
		"an unknown dry run":           {[]string{"--dry-run=maybe", "--", "ls"}, "", "client, server or none"},
		"detaching from a dry run":     {[]string{"--dry-run", "--detach", "--", "ls"}, "", "a dry run creates no call"},
		"a server without a session":   {[]string{"--background", "--", "ls"}, "", "--background needs --session"},
		"a session and an environment": {[]string{"--session", "a", "--environment", "b", "--", "ls"}, "", "session start"},
		"a session and a skill":        {[]string{"--session", "a", "--skill", "b", "--", "ls"}, "", "can't be used with --environment or --skill"},
		"a cluster that isn't there":   {[]string{"--request-timeout", "2s", "--", "ls"}, "", "connection refused"},
		"a context that isn't there":   {[]string{"--context", "none", "--", "ls"}, "", "context was not found"},
		"an unknown flag":              {[]string{"--what", "--", "ls"}, "", "unknown flag"},
		"a name with a line break":     {[]string{"--context", "a\x1b[31m\nb", "--", "ls"}, "", "context was not found"},
		"an unknown format":            {[]string{"--dry-run", "-o", "toml", "--", "ls"}, "", "yaml"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, errs, code := plugintest.Run(c.stdin, append([]string{"--kubeconfig", config, "run"}, c.args...)...)
			if code != cli.CodeFailed || out != "" || !strings.HasPrefix(errs, "error: ") || !strings.Contains(errs, c.want) || strings.Contains(errs, "\x1b") {
				t.Errorf("exit code %d, %q, %q", code, out, errs)
			}
		})
	}
}
