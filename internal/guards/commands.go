package guards

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// MaxParts bounds the commands of a script, and the modules of a source, that are listed.
const MaxParts = 1024

// Command is a command of a script.
type Command struct {
	// Name and Args are the words of the command. One that isn't written out stands as it is in the script.
	Name string
	Args []string
	// Literal says that all words are written out: they are what the shell passes on.
	Literal bool
}

// Commands are the commands of a script for the environment's shell, wherever they stand in it, and in no special order. The error says
// why they aren't known. What a command itself starts isn't among them: a text for eval, or a program of xargs.
func Commands(script string, shell []string) ([]Command, error) {
	if !readsBash(shell) {
		return nil, fmt.Errorf("the environment's shell is %s, and only scripts for bash are read", quote(strings.Join(shell, " ")))
	}
	file, unreadable := (&parsers{}).read(script)
	if unreadable != nil {
		return nil, fmt.Errorf("line %d, column %d: %s", max(unreadable.line, 1), max(unreadable.column, 1), unreadable.why)
	}
	commands := []Command{}
	syntax.Walk(file, func(node syntax.Node) bool {
		if call, ok := node.(*syntax.CallExpr); ok && len(call.Args) > 0 && len(commands) <= MaxParts {
			commands = append(commands, commandOf(script, call))
		}
		return true
	})
	if len(commands) > MaxParts {
		return nil, fmt.Errorf("the script has more than %d commands: split it into several calls", MaxParts)
	}
	return commands, nil
}

func commandOf(script string, call *syntax.CallExpr) Command {
	words := make([]string, 0, len(call.Args))
	literal := true
	for _, word := range call.Args {
		text, written := writtenOut(word)
		if !written {
			text = script[word.Pos().Offset():word.End().Offset()]
		}
		words, literal = append(words, text), literal && written
	}
	return Command{Name: words[0], Args: words[1:], Literal: literal}
}

// Modules are the modules that import statements of a source name, sorted, with the packages that they are part of: os.path and os. It
// searches the text like the guards do, so that a statement in a string or a comment counts. The error says why they aren't known.
func Modules(source, language string) ([]string, error) {
	var found findings
	run := newScanRun(newModuleScanner(nil, false), source, language, &found)
	run.imported = map[string]bool{}
	run.scan()
	switch {
	case found.unreadable != "":
		return nil, fmt.Errorf("the source can't be searched for modules: %s", found.unreadable)
	case len(run.imported) > MaxParts:
		return nil, fmt.Errorf("the source imports more than %d modules: split it into several calls", MaxParts)
	default:
		return slices.Sorted(maps.Keys(run.imported)), nil
	}
}

// addImported notes an imported module and the packages that it is part of.
func (r *scanRun) addImported(name string) {
	if r.imported == nil || name == "" || len(r.imported) > MaxParts {
		return
	}
	if !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "/") {
		for i, c := range name {
			if (c == '.' || c == '/') && i > 0 {
				r.imported[name[:i]] = true
			}
		}
	}
	r.imported[name] = true
}

// skipAlias skips "as" and the name that follows; it returns i where there is none.
func (r *scanRun) skipAlias(i int) int {
	if r.imported == nil {
		return i
	}
	end := r.wordAhead(i)
	if r.text[i:end] != "as" {
		return i
	}
	return r.wordAhead(r.skip(end, false))
}
