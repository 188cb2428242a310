package guards

import (
	"encoding/json"
	"math"
	"math/bits"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"toolcall.dev/operator/api/v1alpha1"
)

func ptr[T any](value T) *T { return &value }

func toolSpec(name, arguments string) *v1alpha1.ToolCallSpec {
	tool := &v1alpha1.ToolAction{Name: name}
	if arguments != "" {
		tool.Arguments = &runtime.RawExtension{Raw: []byte(arguments)}
	}
	return &v1alpha1.ToolCallSpec{Tool: tool}
}

func TestToolCallsBecomeActions(t *testing.T) {
	t.Parallel()
	shell := func(command string) *Action { return &Action{Type: v1alpha1.ActionShell, Command: command} }
	code := func(language string) *Action {
		return &Action{Type: v1alpha1.ActionCode, Language: language, Source: "1"}
	}
	withTime := func(action *Action, limit time.Duration) *Action {
		action.WantedTime = &limit
		return action
	}
	type call struct{ name, arguments string }
	for given, want := range map[call]*Action{
		{"bash", `{"command":"ls"}`}:                                           shell("ls"),
		{"Shell", `{"cmd":"ls"}`}:                                              shell("ls"),
		{"run_command", `{"input":"ls"}`}:                                      shell("ls"),
		{"TERMINAL", `{"command":"a","cmd":"b"}`}:                              shell("a"),
		{"exec", `{"mode":"shell","command":"ls"}`}:                            shell("ls"),
		{"execute", `{"command":null,"cmd":"ls"}`}:                             shell("ls"),
		{"run", `{"command":"","cmd":"ls"}`}:                                   shell(""),
		{"shell_exec", `{"command":"ls","timeout":5}`}:                         withTime(shell("ls"), 5*time.Second),
		{"execute_bash", `{"command":"ls"}`}:                                   shell("ls"),
		{"execute_command", `{"command":"ls"}`}:                                shell("ls"),
		{"run_shell_command", `{"command":"ls"}`}:                              shell("ls"),
		{"run_terminal_cmd", `{"command":"ls"}`}:                               shell("ls"),
		{"cmd_runner", `{"cmd":"ls"}`}:                                         shell("ls"),
		{"shell_command", `{"command":["bash","-lc","ls | wc"]}`}:              shell("ls | wc"),
		{"local_shell", `{"command":["/bin/sh","-c","ls"],"timeout":2}`}:       withTime(shell("ls"), 2*time.Second),
		{"local_shell", `{"command":["ls","-l"]}`}:                             {Type: v1alpha1.ActionStructured, Binary: "ls", Args: []string{"-l"}},
		{"shell", `{"cmd":["bash","-x","a.sh"]}`}:                              {Type: v1alpha1.ActionStructured, Binary: "bash", Args: []string{"-x", "a.sh"}},
		{"shell", `{"input":["ls"]}`}:                                          {Type: v1alpha1.ActionStructured, Binary: "ls", Args: []string{}},
		{"bash", `{"command":"ls","timeout":1.5}`}:                             withTime(shell("ls"), 1500*time.Millisecond),
		{"bash", `{"command":"ls","timeout":1e300}`}:                           withTime(shell("ls"), math.MaxInt64),
		{"bash", `{"command":"ls","timeout":-1e300}`}:                          withTime(shell("ls"), math.MinInt64),
		{"bash", `{"command":"ls","timeout":null}`}:                            shell("ls"),
		{"exec", `{"mode":"structured","binary":"ls","args":["-l"]}`}:          {Type: v1alpha1.ActionStructured, Binary: "ls", Args: []string{"-l"}},
		{"exec", `{"mode":"structured","binary":"ls"}`}:                        {Type: v1alpha1.ActionStructured, Binary: "ls"},
		{"exec", `{"mode":"structured","binary":"ls","timeout":2}`}:            withTime(&Action{Type: v1alpha1.ActionStructured, Binary: "ls"}, 2*time.Second),
		{"python", `{"code":"1"}`}:                                             code("python"),
		{"jupyter", `{"source":"1"}`}:                                          code("python"),
		{"notebook_cell", `{"snippet":"1"}`}:                                   code("python"),
		{"ipython", `{"script":"1"}`}:                                          code("python"),
		{"run_python", `{"input":"1"}`}:                                        code("python"),
		{"python", `{"code":"1","language":"Ruby","lang":"perl"}`}:             code("ruby"),
		{"repl", `{"code":"1"}`}:                                               code("javascript"),
		{"eval", `{"code":"1"}`}:                                               code("unknown"),
		{"run_code", `{"code":"1","lang":"Python"}`}:                           code("python"),
		{"code_exec", `{"code":"1","timeout_ms":5000}`}:                        withTime(code("unknown"), 5*time.Second),
		{"exec_code", `{"code":"1","execution_time_ms":5e3}`}:                  withTime(code("unknown"), 5*time.Second),
		{"evaluate", `{"code":"1","maxExecutionTimeMs":99999999999999999999}`}: withTime(code("unknown"), math.MaxInt64),
		{"python", `{"code":"1","network_access":false,"allowNetwork":true}`}:  code("python"),
		{"python", `{"code":"1","timeout":9}`}:                                 code("python"),
	} {
		got, denial := Map(toolSpec(given.name, given.arguments))
		if denial != nil {
			t.Errorf("%v: %+v", given, denial)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v: %s", given, diff)
		}
	}
}

func TestToolCallsThatCannotBeUnderstoodAreDenied(t *testing.T) {
	t.Parallel()
	type call struct{ name, arguments, contains string }
	for _, given := range []call{
		{"bash", ``, "command"}, {"bash", `{}`, "command"}, {"bash", `[]`, "object"}, {"bash", `"x"`, "object"}, {"bash", `{"command":5}`, "command"}, {"bash", `{"command":[]}`, "empty array"}, {"bash", `{"command":["ls",5]}`, "array of strings"}, {"bash", `{"command":["ls",null]}`, "array of strings"},
		{"exec", `{"mode":5}`, "mode"}, {"exec", `{"mode":"","command":"x"}`, "mode"}, {"exec", `{"mode":"docker","command":"x"}`, "docker"}, {"exec", `{"mode":"structured"}`, "binary"}, {"exec", `{"mode":"structured","binary":5}`, "binary"},
		{"exec", `{"mode":"structured","binary":"x","args":"y"}`, "args"}, {"exec", `{"mode":"structured","binary":"x","args":[5]}`, "args"}, {"exec", `{"mode":"structured","binary":"x","args":[null]}`, "args"}, {"exec", `{"mode":"shell"}`, "command"},
		{"bash", `{"command":"x","timeout":"5"}`, "timeout"}, {"bash", `{"command":"x","timeout":true}`, "timeout"}, {"python", `{}`, "code"}, {"python", `{"code":5}`, "code"}, {"python", `{"code":"1","lang":5}`, "lang"}, {"python", `{"code":"1","language":[]}`, "language"},
		{"python", `{"code":"1","networkAccess":"yes"}`, "networkAccess"}, {"python", `{"code":"1","timeout_ms":1.5}`, "timeout_ms"}, {"python", `{"code":"1","timeoutMs":"5"}`, "timeoutMs"},
	} {
		action, denial := Map(toolSpec(given.name, given.arguments))
		if denial == nil || denial.Reason != v1alpha1.ReasonInvalidArguments || !strings.Contains(denial.Message, given.contains) {
			t.Errorf("%v: %+v %+v", given, action, denial)
		}
	}
	if _, denial := Map(toolSpec("send_email", `{"to":"x"}`)); denial == nil || denial.Reason != v1alpha1.ReasonUnknownTool {
		t.Errorf("unknown tool: %+v", denial)
	}
	for _, spec := range []*v1alpha1.ToolCallSpec{nil, {}, {Shell: &v1alpha1.ShellAction{}, Code: &v1alpha1.CodeAction{}}} {
		if _, denial := Map(spec); denial == nil || denial.Reason != v1alpha1.ReasonInvalidArguments {
			t.Errorf("%+v: %+v", spec, denial)
		}
	}
}

// The kernel takes no longer argument, in bytes, and checking one would take memory and time.
func TestNoArgumentIsLongerThanTheKernelTakes(t *testing.T) {
	t.Parallel()
	for size, ok := range map[int]bool{maxCommandBytes: true, maxCommandBytes + 1: false} {
		// Two bytes a character: the API server counts half as much.
		text := strings.Repeat("é", size/2) + strings.Repeat("x", size%2)
		raw, err := json.Marshal(map[string]string{"command": text})
		if err != nil {
			t.Fatal(err)
		}
		for name, spec := range map[string]*v1alpha1.ToolCallSpec{
			"shell":      {Shell: &v1alpha1.ShellAction{Command: text}},
			"structured": {Structured: &v1alpha1.StructuredAction{Binary: "echo", Args: []string{"x", text}}},
			"tool":       {Tool: &v1alpha1.ToolAction{Name: "bash", Arguments: &runtime.RawExtension{Raw: raw}}},
		} {
			_, denial := Map(spec)
			if (denial == nil) != ok || denial != nil && (denial.Reason != v1alpha1.ReasonInvalidArguments || !strings.Contains(denial.Message, "131071 bytes")) {
				t.Errorf("%s of %d bytes: %+v", name, size, denial)
			}
		}
	}
}

func TestWhatElsewhereHasAKernelSaysThatItHasNone(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]bool{"jupyter": true, "IPython": true, "notebook": true, "notebook_cell": true, "python": false, "bash": false} {
		if note := ToolNote(&v1alpha1.ToolAction{Name: name}); strings.Contains(note, "plain Python") != says {
			t.Errorf("%s: %q", name, note)
		}
	}
	if note := ToolNote(nil); note != "" {
		t.Errorf("no tool: %q", note)
	}
}

func TestABinaryThatIsACommandLineIsExplained(t *testing.T) {
	t.Parallel()
	for _, spec := range []v1alpha1.ExecutionPolicySpec{
		{Access: v1alpha1.AccessOpen, Binaries: &v1alpha1.BinariesPolicy{Allowed: []string{"ls"}}}, {},
	} {
		policy, err := Compile(&spec)
		if err != nil {
			t.Fatal(err)
		}
		for binary, says := range map[string]bool{"ls -la": true, "cat": false} {
			denial := policy.Check(Input{
				Action: &Action{Type: v1alpha1.ActionStructured, Binary: binary}, Requester: &v1alpha1.Requester{Username: "a"},
				MayUse: func(string) (bool, error) { return false, nil },
			})
			if denial == nil || strings.Contains(denial.Message, `binary "ls", args ["-la"]`) != says {
				t.Errorf("%q: %+v", binary, denial)
			}
		}
	}
}

func TestTheToolsOwnTimeWinsOverTheSpecs(t *testing.T) {
	t.Parallel()
	spec := toolSpec("python", `{"code":"1","timeout_ms":2000}`)
	spec.TimeoutSeconds = ptr(int32(9))
	if action, _ := Map(spec); *action.WantedTime != 2*time.Second {
		t.Errorf("got %v", *action.WantedTime)
	}
	spec = toolSpec("python", `{"code":"1"}`)
	spec.TimeoutSeconds = ptr(int32(9))
	if action, _ := Map(spec); *action.WantedTime != 9*time.Second {
		t.Errorf("got %v", *action.WantedTime)
	}
}

func TestSummariesAreShortAndVisible(t *testing.T) {
	t.Parallel()
	for want, action := range map[string]*Action{
		"ls -l a b":             {Type: v1alpha1.ActionStructured, Binary: "ls", Args: []string{"-l", "a b"}},
		"echo a  b ␛[31m\ufffd": {Type: v1alpha1.ActionShell, Command: "echo a\n\tb \x1b[31m\u202e"},
		strings.Repeat("é", 40): {Type: v1alpha1.ActionCode, Source: strings.Repeat("é", 60)},
		"x" + strings.Repeat("y", 0) + " " + strings.Repeat("a", 38): {Type: v1alpha1.ActionStructured, Binary: "x", Args: []string{strings.Repeat("a", 500), "b"}},
	} {
		if got := action.Summary(); got != want {
			t.Errorf("want %q, got %q", want, got)
		}
	}
	broken := (&Action{Type: v1alpha1.ActionShell, Command: "\xff\xfe" + strings.Repeat("\xff", 100)}).Summary()
	if !utf8.ValidString(broken) || utf8.RuneCountInString(broken) > 40 {
		t.Errorf("got %q", broken)
	}
}

// The API server refuses these too, where the admission policies are in force.
func TestACallHasExactlyOneAction(t *testing.T) {
	t.Parallel()
	for given := range 16 {
		spec := &v1alpha1.ToolCallSpec{}
		if given&1 != 0 {
			spec.Structured = &v1alpha1.StructuredAction{Binary: "ls"}
		}
		if given&2 != 0 {
			spec.Shell = &v1alpha1.ShellAction{Command: "ls"}
		}
		if given&4 != 0 {
			spec.Code = &v1alpha1.CodeAction{Language: "python", Source: "1"}
		}
		if given&8 != 0 {
			spec.Tool = &v1alpha1.ToolAction{Name: "bash", Arguments: &runtime.RawExtension{Raw: []byte(`{"command":"ls"}`)}}
		}
		action, denial := Map(spec)
		if one := bits.OnesCount(uint(given)) == 1; one != (action != nil) || one != (denial == nil) {
			t.Errorf("%04b: %+v, %+v", given, action, denial)
		}
		if denial != nil && denial.Reason != v1alpha1.ReasonInvalidArguments {
			t.Errorf("%04b: %+v", given, denial)
		}
	}
}

func FuzzMap(f *testing.F) {
	f.Add("bash", `{"command":"ls"}`)
	f.Add("python", `{"code":"1","timeout_ms":1e400}`)
	f.Add("exec", `{"mode":"structured","binary":"x","args":["y",null],"timeout":1e-999999}`)
	f.Fuzz(func(t *testing.T, name, arguments string) {
		action, denial := Map(toolSpec(name, arguments))
		if (action == nil) == (denial == nil) {
			t.Fatal("want an action or a denial, and not both")
		}
		if denial != nil && (denial.Message == "" || len(denial.Message) > 1000) {
			t.Fatalf("message: %q", denial.Message)
		}
		if action != nil && !json.Valid([]byte(arguments)) && arguments != "" && strings.TrimSpace(arguments) != "" {
			t.Fatal("accepted what is no JSON")
		}
	})
}
