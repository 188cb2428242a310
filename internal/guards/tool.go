package guards

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
)

// toolKind is what the name of a model's tool means.
type toolKind struct {
	names    string
	language string // of a code tool without a language argument
	shell    bool
}

// toolKinds lists every tool name that is understood, in lower case.
func toolKinds() []toolKind {
	return []toolKind{
		{names: "bash shell run_command exec execute run shell_exec terminal", shell: true},
		// What other agents call theirs.
		{names: "execute_bash execute_command run_shell_command run_terminal_cmd shell_command local_shell cmd_runner", shell: true},
		{names: "python python_exec run_python " + notebookNames, language: "python"},
		{names: "repl", language: "javascript"},
		{names: "eval evaluate code_exec exec_code run_code", language: LanguageUnknown},
	}
}

// notebookNames are the tools that elsewhere have a kernel behind them.
const notebookNames = "jupyter ipython notebook notebook_cell"

// ToolNote is what somebody has to know whose call of a tool failed, and who may expect more of the tool; empty for most tools.
func ToolNote(tool *v1alpha1.ToolAction) string {
	if tool == nil || !hasField(notebookNames, strings.ToLower(tool.Name)) {
		return ""
	}
	return fmt.Sprintf("%s runs plain Python: there is no kernel, so that variables of earlier calls are gone, and lines with %% or ! are no Python", tool.Name)
}

func mapTool(tool *v1alpha1.ToolAction, wanted *time.Duration) (*Action, *Denial) {
	name := strings.ToLower(tool.Name)
	for _, kind := range toolKinds() {
		for known := range strings.FieldsSeq(kind.names) {
			if known == name {
				return mapKnownTool(kind, tool, wanted)
			}
		}
	}
	return nil, &Denial{
		Reason: v1alpha1.ReasonUnknownTool,
		Message: fmt.Sprintf("tool %s is not known: use bash, shell or exec for a command, python for Python, "+
			"or run_code with a language for other code", quote(tool.Name)),
	}
}

func mapKnownTool(kind toolKind, tool *v1alpha1.ToolAction, wanted *time.Duration) (*Action, *Denial) {
	args, action := newArguments(tool), &Action{}
	if kind.shell {
		action.fillShell(args)
	} else {
		action.fillCode(args, kind.language)
	}
	if args.err != nil {
		return nil, invalid(args.err.Error())
	}
	if action.WantedTime == nil {
		action.WantedTime = wanted
	}
	return action, nil
}

func (a *Action) fillShell(args *arguments) {
	mode, given := args.text("mode")
	a.WantedTime = args.seconds("timeout")
	switch {
	case !given || mode == "shell":
		a.fillCommand(args)
	case mode == "structured":
		a.fillStructured(args)
	default:
		args.fail("argument mode is %s: use \"shell\" or \"structured\"", quote(mode))
	}
}

// fillCommand takes a command line, or a list of strings: a program with its arguments.
func (a *Action) fillCommand(args *arguments) {
	name, raw := args.first([]string{"command", "cmd", "input"})
	if name == "" {
		args.fail("a shell call needs the argument command (or cmd, input), a string or an array of strings")
		return
	}
	a.Type = v1alpha1.ActionShell
	if json.Unmarshal(raw, &a.Command) == nil {
		return
	}
	words := args.texts(name, "a string, or an array of strings")
	switch {
	case len(words) == 0:
		args.fail("argument %s is an empty array: use a program and its arguments, or a command line as a string", name)
	case isShellLine(words):
		a.Command = words[2]
	default:
		a.Type, a.Binary, a.Args = v1alpha1.ActionStructured, words[0], words[1:]
	}
}

// isShellLine says that a program with its arguments is a shell that runs a line.
func isShellLine(words []string) bool {
	return len(words) == 3 && (path.Base(words[0]) == "bash" || path.Base(words[0]) == "sh") && (words[1] == "-c" || words[1] == "-lc")
}

func (a *Action) fillStructured(args *arguments) {
	a.Type = v1alpha1.ActionStructured
	var given bool
	if a.Binary, given = args.text("binary"); !given {
		args.fail("mode structured needs the argument binary, a string")
	}
	a.Args = args.texts("args", "an array of strings")
}

func (a *Action) fillCode(args *arguments, language string) {
	a.Type = v1alpha1.ActionCode
	var given bool
	if a.Source, given = args.text("code", "source", "snippet", "script", "input"); !given {
		args.fail("a code call needs the argument code (or source, snippet, script, input), a string")
	}
	named, _ := args.text("language", "lang")
	a.Language = languageName(cmp.Or(named, language))
	a.Network = args.flag("network_access", "networkAccess", "allow_network", "allowNetwork")
	a.WantedTime = args.wholeMilliseconds("execution_time_ms", "executionTimeMs", "timeout_ms", "timeoutMs",
		"max_execution_time_ms", "maxExecutionTimeMs")
}
