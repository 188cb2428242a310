package guards

import (
	"fmt"
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
		{names: "python python_exec run_python jupyter ipython notebook notebook_cell", language: "python"},
		{names: "repl", language: "javascript"},
		{names: "eval evaluate code_exec exec_code run_code", language: languageUnknown},
	}
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
	args, err := newArguments(tool)
	if err != nil {
		return nil, invalid(err.Error())
	}
	build := mapCodeTool
	if kind.shell {
		build = mapShellTool
	}
	action, err := build(kind, args)
	if err != nil {
		return nil, invalid(err.Error())
	}
	if action.WantedTime == nil {
		action.WantedTime = wanted
	}
	return action, nil
}

func mapShellTool(_ toolKind, args *arguments) (*Action, error) {
	mode, given, err := args.text("mode")
	if err != nil {
		return nil, err
	}
	limit, err := args.seconds("timeout")
	if err != nil {
		return nil, err
	}
	action := &Action{WantedTime: limit}
	switch {
	case !given || mode == "shell":
		return action, action.fillShell(args)
	case mode == "structured":
		return action, action.fillStructured(args)
	default:
		return nil, fmt.Errorf("argument mode is %s: use \"shell\" or \"structured\"", quote(mode))
	}
}

func (a *Action) fillShell(args *arguments) error {
	a.Type = v1alpha1.ActionShell
	command, given, err := args.text("command", "cmd", "input")
	if err == nil && !given {
		err = fmt.Errorf("a shell call needs the argument command (or cmd, input), a string")
	}
	if len(command) > maxCommandBytes {
		err = fmt.Errorf("argument command takes %d bytes, and the kernel takes at most %d: pass large data by stdin", len(command), maxCommandBytes)
	}
	a.Command = command
	return err
}

// maxCommandBytes is the longest argument that Linux takes (MAX_ARG_STRLEN less the NUL), as in spec.shell.command.
const maxCommandBytes = 131071

func (a *Action) fillStructured(args *arguments) error {
	a.Type = v1alpha1.ActionStructured
	binary, given, err := args.text("binary")
	if err != nil {
		return err
	}
	if !given {
		return fmt.Errorf("mode structured needs the argument binary, a string")
	}
	a.Binary = binary
	a.Args, err = args.texts("args")
	return err
}

func mapCodeTool(kind toolKind, args *arguments) (*Action, error) {
	source, given, err := args.text("code", "source", "snippet", "script", "input")
	if err != nil {
		return nil, err
	}
	if !given {
		return nil, fmt.Errorf("a code call needs the argument code (or source, snippet, script, input), a string")
	}
	language, _, err := args.text("language", "lang")
	if err != nil {
		return nil, err
	}
	if language == "" {
		language = kind.language
	}
	network, err := args.flag("network_access", "networkAccess", "allow_network", "allowNetwork")
	if err != nil {
		return nil, err
	}
	limit, err := args.wholeMilliseconds("execution_time_ms", "executionTimeMs", "timeout_ms", "timeoutMs",
		"max_execution_time_ms", "maxExecutionTimeMs")
	return &Action{
		Type: v1alpha1.ActionCode, Language: languageName(language), Source: source, Network: network, WantedTime: limit,
	}, err
}
