package tools

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestArguments(t *testing.T) {
	t.Parallel()
	shell := func(change func(*v1alpha1.ToolCallSpec)) v1alpha1.ToolCallSpec {
		spec := v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "ls"}, TimeoutSeconds: new(defaultTimeoutSeconds)}
		if change != nil {
			change(&spec)
		}
		return spec
	}
	for name, test := range map[string]struct {
		read func(*arguments) *CallRequest
		raw  string
		want v1alpha1.ToolCallSpec
	}{
		"a command line has two minutes": {runCommandSpec, `{"command":"ls"}`, shell(nil)},
		"what is null or says nothing counts as absent": {
			runCommandSpec, `{"command":"ls","env":null,"stdin":"","timeout_seconds":null,"environment":"","working_dir":null,"network_hosts":[]}`, shell(nil),
		},
		"a whole number may be written as a fraction": {
			runCommandSpec, `{"command":"ls","timeout_seconds":7.0}`, shell(func(s *v1alpha1.ToolCallSpec) { s.TimeoutSeconds = new(int32(7)) }),
		},
		"numbers, lists and objects may be written as texts": {
			runProgramSpec, `{"program":"head","args":"[\"-n\", 5, true]","timeout_seconds":" 30 ","env":"{\"A\":\"b\",\"N\":1}","background":"false","working_dir":""}`,
			v1alpha1.ToolCallSpec{
				Structured: &v1alpha1.StructuredAction{Binary: "head", Args: []string{"-n", "5", "true"}}, TimeoutSeconds: new(int32(30)),
				Env: []v1alpha1.CallEnvVar{{Name: "A", Value: "b"}, {Name: "N", Value: "1"}},
			},
		},
		"all arguments may be written as a text": {runCommandSpec, `"{\"command\":\"ls\"}"`, shell(nil)},
		"an empty text is no number":             {runCommandSpec, `{"command":"ls","timeout_seconds":"","env":" "}`, shell(nil)},
		"an empty list is an empty object":       {runCommandSpec, `{"command":"ls","env":[ ]}`, shell(nil)},
		"a call in the background has no time limit of its own": {
			runCommandSpec, `{"command":"ls","background":true,"collect":["*.png"]}`,
			v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "ls"}, Background: true, Collect: []string{"*.png"}},
		},
		"everything that a call can have": {
			runProgramSpec, `{"program":"git","args":["log","-1",""],"timeout_seconds":5,"environment":"big","working_dir":"src","env":{"B":"2","A":""},"stdin":"in\u0000put"}`,
			v1alpha1.ToolCallSpec{
				Structured:     &v1alpha1.StructuredAction{Binary: "git", Args: []string{"log", "-1", ""}},
				TimeoutSeconds: new(int32(5)), EnvironmentRef: &v1alpha1.LocalReference{Name: "big"}, WorkingDir: "src",
				Env: []v1alpha1.CallEnvVar{{Name: "A"}, {Name: "B", Value: "2"}}, Stdin: "in\x00put",
			},
		},
		"a call may narrow its network": {
			runCommandSpec, `{"command":"ls","network_hosts":["a.example.com","*.b.example.com","192.0.2.0/24"]}`, shell(func(s *v1alpha1.ToolCallSpec) {
				s.Network = &v1alpha1.CallNetwork{Hosts: []string{"a.example.com", "*.b.example.com", "192.0.2.0/24"}}
			}),
		},
		"code's time is the policy's": {
			runCodeSpec, `{"language":"python","code":"print(1)"}`,
			v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: "python", Source: "print(1)"}},
		},
		"code may ask for network and time": {
			runCodeSpec, `{"language":"python","code":"x","network":true,"timeout_seconds":9}`,
			v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: "python", Source: "x", NetworkAccess: new(true)}, TimeoutSeconds: new(int32(9))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parse([]byte(test.raw), test.read)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.Spec); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Every message starts with the name of the argument and says what is valid.
func TestInvalidArguments(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		read func(*arguments) *CallRequest
		raw  string
		want []string
	}{
		"nothing":                        {runCommandSpec, ``, []string{"command: is required: the command line to run"}},
		"an empty list":                  {runCommandSpec, `[]`, []string{"command: is required: the command line to run"}},
		"an empty list for a text":       {runCommandSpec, `{"command":"ls","stdin":[]}`, []string{"stdin: must be a string, not a list"}},
		"an empty list for a number":     {runCommandSpec, `{"command":"ls","timeout_seconds":[]}`, []string{"timeout_seconds: must be a whole number of seconds, not a list"}},
		"an empty list for a flag":       {runCommandSpec, `{"command":"ls","background":[]}`, []string{"background: must be true or false, not a list"}},
		"no object":                      {runCommandSpec, `["ls"]`, []string{"arguments: must be a JSON object with command, stdin, background"}},
		"half an object":                 {runCommandSpec, `{"command":`, []string{"arguments: must be a JSON object"}},
		"a program without a name":       {runProgramSpec, `{"args":["x"]}`, []string{"program: is required: the name of the program to run"}},
		"another tool's arguments":       {runCommandSpec, `{"command":"ls","args":["-l"]}`, []string{"args: is unknown: use command"}},
		"a command that is no text":      {runCommandSpec, `{"command":1}`, []string{"command: must be a string, not a number"}},
		"an unknown argument":            {runCommandSpec, `{"command":"ls","cwd":"/"}`, []string{"cwd: is unknown: use command, stdin, background, collect, network_hosts, session, environment, timeout_seconds, working_dir, env, request_id"}},
		"another spelling":               {runCommandSpec, `{"Command":"ls"}`, []string{"Command: is unknown: use command"}},
		"a list with a list":             {runProgramSpec, `{"program":"ls","args":["-l",[1]]}`, []string{"args[1]: must be a string, not a list"}},
		"a text that is no list":         {runProgramSpec, `{"program":"ls","args":"-l"}`, []string{"args: must be a list of strings, not a string"}},
		"a list with a null":             {runProgramSpec, `{"program":"ls","args":[null]}`, []string{"args[0]: must be a string, not null"}},
		"a NUL":                          {runProgramSpec, `{"program":"l\u0000s","args":["a\u0000"],"working_dir":"\u0000"}`, []string{"program: must not contain a NUL", "args[0]: must not contain a NUL", "working_dir: must not contain a NUL"}},
		"time as a word":                 {runCommandSpec, `{"command":"ls","timeout_seconds":"soon"}`, []string{"timeout_seconds: must be a whole number of seconds, not a string"}},
		"time as the text null":          {runCommandSpec, `{"command":"ls","timeout_seconds":"null"}`, []string{"timeout_seconds: must be a whole number of seconds, not a string"}},
		"no time":                        {runCommandSpec, `{"command":"ls","timeout_seconds":0}`, []string{"timeout_seconds: must be a whole number of seconds, at least 1"}},
		"a part of a second":             {runCommandSpec, `{"command":"ls","timeout_seconds":1.5}`, []string{"timeout_seconds: must be a whole number of seconds, at least 1 and at most 2147483647, not 1.5"}},
		"more time than there is":        {runCommandSpec, `{"command":"ls","timeout_seconds":1e300}`, []string{"timeout_seconds: must be a whole number"}},
		"variables as a list":            {runCommandSpec, `{"command":"ls","env":["A=1"]}`, []string{`env: must be an object of names and strings such as {"LANG": "C"}`}},
		"a variable's number":            {runCommandSpec, `{"command":"ls","env":{"A":{},"B":null}}`, []string{"env.A: must be a string, not an object", "env.B: must be a string, not null"}},
		"no variable's name":             {runCommandSpec, `{"command":"ls","env":{"A-B":"1","":"2"}}`, []string{"env.A-B: is not a valid name", "env.: is not a valid name"}},
		"no environment's name":          {runCommandSpec, `{"command":"ls","environment":"../x"}`, []string{"environment: must be the name of an environment"}},
		"code without a language":        {runCodeSpec, `{"code":"1"}`, []string{"language: is required"}},
		"code without code":              {runCodeSpec, `{"language":"python"}`, []string{"code: is required"}},
		"network as text":                {runCodeSpec, `{"language":"python","code":"1","network":"yes"}`, []string{"network: must be true or false, not a string"}},
		"hosts as text":                  {runProgramSpec, `{"program":"ls","network_hosts":"a.example.com"}`, []string{"network_hosts: must be a list of strings, not a string"}},
		"no host's name":                 {runCodeSpec, `{"language":"python","code":"1","network_hosts":["a.example.com","https://b.example.com/x",""]}`, []string{`network_hosts[1]: "https://b.example.com/x" is a URL: write its host alone`, "network_hosts[2]: it is empty: name a host"}},
		"a host of the cloud":            {runCommandSpec, `{"command":"ls","network_hosts":["169.254.169.254"]}`, []string{"network_hosts[0]: 169.254.169.254 is a metadata address, which no policy allows"}},
		"too many hosts":                 {runCommandSpec, `{"command":"ls","network_hosts":["a"` + strings.Repeat(`,"a"`, 64) + `]}`, []string{"network_hosts: has 65 hosts, and may have 64"}},
		"a background without session":   {runCommandSpec, `{"command":"ls","background":true,"environment":"e"}`, []string{"background: is not used together with environment"}},
		"too many files to keep":         {runCommandSpec, `{"command":"ls","collect":["a"` + strings.Repeat(`,"a"`, 16) + `]}`, []string{"collect: has 17 globs, and may have 16"}},
		"a long command":                 {runCommandSpec, `{"command":"` + strings.Repeat("é", 64<<10) + `"}`, []string{"command: has 131072 bytes, and may have 131071: pass large data by stdin"}},
		"a long argument":                {runProgramSpec, `{"program":"` + strings.Repeat("x", 257) + `","args":["` + strings.Repeat("x", 128<<10) + `"]}`, []string{"program: has 257 characters", "args[0]: has 131072 bytes"}},
		"too many arguments":             {runProgramSpec, `{"program":"x","args":["x"` + strings.Repeat(`,"x"`, 1024) + `]}`, []string{"args: has 1025 arguments, and may have 1024"}},
		"a long variable":                {runCommandSpec, `{"command":"ls","env":{"A":"` + strings.Repeat("x", 1+128<<10) + `"}}`, []string{"env.A: has 131073 characters"}},
		"long code":                      {runCodeSpec, `{"language":"python","code":"` + strings.Repeat("x", 1+512<<10) + `"}`, []string{"code: has 524289 characters"}},
		"a NUL in a name":                {runCommandSpec, `{"command":"ls","environment":"\u0000"}`, []string{"environment: must not contain a NUL"}},
		"a command's arguments for code": {runCodeSpec, `{"language":"python","code":"1","command":"ls"}`, []string{"command: is unknown: use language, code, network"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parse([]byte(test.raw), test.read)
			if err == nil {
				t.Fatal("accepted")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(test.want) {
				t.Errorf("got %d messages, want %d: %s", len(lines), len(test.want), err)
			}
			for _, want := range test.want {
				if !strings.Contains("\n"+err.Error(), "\n"+want) {
					t.Errorf("no message %q in: %s", want, err)
				}
			}
		})
	}
}

// A long name is truncated.
func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(map[string]any{strings.Repeat("é", 1<<20): 1, "command": "ls"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parse(raw, runCommandSpec); err == nil || len(err.Error()) > 1000 {
		t.Errorf("the message has %d bytes", len(err.Error()))
	}
}

// However many errors there are, the message is short.
func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	many := map[string]any{}
	for i := range 10_000 {
		many[fmt.Sprintf("unknown-%05d", i)] = 1
	}
	raw, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parse(raw, runCommandSpec); err == nil || strings.Count(err.Error(), "\n") != maxErrors-1 || !strings.HasSuffix(err.Error(), "there are more errors: correct these first") {
		t.Errorf("%v", err)
	}
}

// Any arguments give one action with what was sent, or an error.
func FuzzRunCommandSpec(f *testing.F) {
	f.Add([]byte(`{"command":"ls","env":{"A":"b"}}`))
	f.Add([]byte(`{"command":"ls","timeout_seconds":1}`))
	f.Add([]byte(`{"command":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		request, err := parse(raw, runCommandSpec)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a message")
			}
			return
		}
		spec := request.Spec
		if spec.Shell == nil || spec.Shell.Command == "" || spec.Structured != nil || spec.Code != nil || spec.Tool != nil {
			t.Errorf("not one action: %+v", spec)
		}
		if spec.TimeoutSeconds == nil && !spec.Background || spec.TimeoutSeconds != nil && *spec.TimeoutSeconds < 1 {
			t.Errorf("no time limit: %v", spec.TimeoutSeconds)
		}
	})
}
