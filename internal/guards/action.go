package guards

import (
	"fmt"
	"strings"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
)

// LanguageUnknown is the language of a code call that names none.
const LanguageUnknown = "unknown"

// Action is what a call was mapped onto.
type Action struct {
	Type v1alpha1.ActionType

	// Binary and Args are set for Structured.
	Binary string
	Args   []string

	// Command is set for Shell.
	Command string

	// Language, in lower case, and Source are set for Code. Network: the call asks for network access.
	Language string
	Source   string
	Network  bool

	// File is set for File.
	File *v1alpha1.FileAction

	// WantedTime is the limit that the call asks for: the time in a tool call's own arguments, else
	// spec.timeoutSeconds; nil when neither is given.
	WantedTime *time.Duration
}

// Denial is a guard's refusal.
type Denial struct {
	// Reason is one of the reasons of a denial in api/v1alpha1.
	Reason string
	// Message says what was refused, by which rule, and what would pass.
	Message string
	// Alternatives are the policy's programs or languages that would pass in place of what was refused; none where it lists none.
	Alternatives []string
	// Line and Column are where in the script something was refused, from 1; 0 where there is no such place.
	Line, Column int
}

// instead says what the policy lists that would pass.
func (d *Denial) instead(listed []string) *Denial {
	d.Alternatives = listed
	return d
}

// at says where in the script it is.
func (d *Denial) at(line, column uint) *Denial {
	d.Line, d.Column = int(line), int(column)
	return d
}

// Names of file actions, for access.
const (
	ToolFileRead  = "file.read"
	ToolFileWrite = "file.write"
)

// Tool is the name that is checked against access: the binary, bash for Shell, the language for Code, and for File whether
// it changes files.
func (a *Action) Tool() string {
	switch a.Type {
	case v1alpha1.ActionShell:
		return "bash"
	case v1alpha1.ActionCode:
		return a.Language
	case v1alpha1.ActionFile:
		if a.File.Operation.Writes() {
			return ToolFileWrite
		}
		return ToolFileRead
	default:
		return a.Binary
	}
}

// Summary is the first 40 characters of what runs, on one line.
func (a *Action) Summary() string {
	var text string
	switch a.Type {
	case v1alpha1.ActionStructured:
		text = strings.Join(append([]string{a.Binary}, a.Args...), " ")
	case v1alpha1.ActionShell:
		text = a.Command
	case v1alpha1.ActionCode:
		text = a.Source
	case v1alpha1.ActionFile:
		text = string(a.File.Operation) + " " + a.File.Path
	}
	text, _ = cutRunes(text, maxSummary)
	return printable(text)
}

// maxCommandBytes is the longest argument that Linux takes (MAX_ARG_STRLEN less the NUL).
const maxCommandBytes = 131071

// Map turns what a call asks for into one action, or denies it when it can't be understood, or when no process can be started with
// it.
func Map(spec *v1alpha1.ToolCallSpec) (*Action, *Denial) {
	action, denial := mapSpec(spec)
	if denial != nil {
		return nil, denial
	}
	const tooLong = "%s takes %d bytes, and the kernel takes at most %d bytes in one argument of a process: pass large data by stdin, or write it to a file first"
	if size := len(action.Command); size > maxCommandBytes {
		return nil, invalid(fmt.Sprintf(tooLong, "the command", size, maxCommandBytes))
	}
	for i, arg := range action.Args {
		if size := len(arg); size > maxCommandBytes {
			return nil, invalid(fmt.Sprintf(tooLong, fmt.Sprintf("argument %d", i), size, maxCommandBytes))
		}
	}
	return action, nil
}

func mapSpec(spec *v1alpha1.ToolCallSpec) (*Action, *Denial) {
	if spec == nil || countSet(spec) != 1 {
		return nil, invalid("set exactly one of structured, shell, code, tool and file")
	}
	action := &Action{}
	if spec.TimeoutSeconds != nil {
		limit := time.Duration(*spec.TimeoutSeconds) * time.Second
		action.WantedTime = &limit
	}
	switch {
	case spec.Structured != nil:
		action.Type, action.Binary, action.Args = v1alpha1.ActionStructured, spec.Structured.Binary, spec.Structured.Args
	case spec.Shell != nil:
		action.Type, action.Command = v1alpha1.ActionShell, spec.Shell.Command
	case spec.Code != nil:
		action.Type, action.Language, action.Source = v1alpha1.ActionCode, languageName(spec.Code.Language), spec.Code.Source
		action.Network = isTrue(spec.Code.NetworkAccess)
	case spec.File != nil:
		if spec.Stdin != "" || spec.Background {
			return nil, invalid("stdin and background mean nothing to a file action, which has no process: leave them out")
		}
		action.Type, action.File = v1alpha1.ActionFile, spec.File
	default:
		return mapTool(spec.Tool, action.WantedTime)
	}
	return action, nil
}

func countSet(spec *v1alpha1.ToolCallSpec) int {
	n := 0
	for _, set := range []bool{spec.Structured != nil, spec.Shell != nil, spec.Code != nil, spec.Tool != nil, spec.File != nil} {
		if set {
			n++
		}
	}
	return n
}

func languageName(language string) string {
	if language == "" {
		return LanguageUnknown
	}
	return strings.ToLower(language)
}

func invalid(message string) *Denial {
	return &Denial{Reason: v1alpha1.ReasonInvalidArguments, Message: message}
}
