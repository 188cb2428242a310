package guards

import (
	"errors"
	"fmt"
	"maps"
	"path"
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
// why they aren't known, also where shells of that name read the script differently. What a command itself starts isn't among them: a
// text for eval, or a program of xargs.
func Commands(script string, shell []string) ([]Command, error) {
	if !readsBash(shell) {
		return nil, fmt.Errorf("the environment's shell is %s, and only scripts for bash are read", quote(strings.Join(shell, " ")))
	}
	file, unreadable := readScript(script, syntax.LangBash)
	if unreadable == nil {
		unreadable = readsOtherwise(script, file, shell)
	}
	if unreadable != nil {
		return nil, errors.New(unreadable.String())
	}
	calls := callsOf(file)
	if len(calls) > MaxParts {
		return nil, fmt.Errorf("the script has more than %d commands: split it into several calls", MaxParts)
	}
	commands := make([]Command, 0, len(calls))
	for _, call := range calls {
		commands = append(commands, commandOf(script, call))
	}
	return commands, nil
}

// callsOf are the commands of a script, in the order of its tree.
func callsOf(file *syntax.File) (calls []*syntax.CallExpr) {
	syntax.Walk(file, func(node syntax.Node) bool {
		if call, ok := node.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			calls = append(calls, call)
		}
		return true
	})
	return calls
}

// readsOtherwise says why the tree that bash has of a script isn't that of the environment's shell; nil where it is. Nobody knows which
// shell sh is, and dash takes "echo &> x git push" for two commands: a script for them has the same commands in bash and in POSIX.
func readsOtherwise(script string, asBash *syntax.File, shell []string) *unreadable {
	if len(shell) == 0 || path.Base(shell[0]) == "bash" {
		return nil
	}
	asPOSIX, problem := readScript(script, syntax.LangPOSIX)
	if problem != nil {
		return problem
	}
	bash, posix := notDeclaring(callsOf(asBash)), notDeclaring(callsOf(asPOSIX))
	same := func(a, b *syntax.CallExpr) bool {
		one, other := commandOf(script, a), commandOf(script, b)
		return a.Pos() == b.Pos() && one.Name == other.Name && one.Literal == other.Literal && slices.Equal(one.Args, other.Args)
	}
	// Shells join the lines of a "((", and the parser doesn't.
	if strings.Contains(script, "(\\\n") || !slices.EqualFunc(bash, posix, same) {
		return &unreadable{why: "the environment's shell is " + quote(strings.Join(shell, " ")) + ", and shells of that name read the script differently: write what POSIX has"}
	}
	return nil
}

// notDeclaring are the commands without export and its like, which bash has a syntax of its own for.
func notDeclaring(calls []*syntax.CallExpr) []*syntax.CallExpr {
	return slices.DeleteFunc(calls, func(call *syntax.CallExpr) bool { return hasField(declaring, call.Args[0].Lit()) })
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
