package guards

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// function is a function that the script defines.
type function struct {
	// needs are the functions that its body calls, which must be defined when the function is called.
	needs map[string]bool
	// definedAt is the value of walker.needs when all functions that it needs were defined.
	definedAt int
}

// checkFunctionCall requires that the function, and the functions that it calls, are certainly defined. In the body of
// another function it notes the requirement for the calls of that function.
func (w *walker) checkFunctionCall(name word) *refusal {
	called := w.functions[name.text]
	if !w.scope.has(functionKey(name.text)) {
		if w.scope.body == nil {
			return refuse(name, "the function "+quote(name.text)+" is called where it is not certainly defined", "define it before, on a line of its own, outside of other commands")
		}
		w.need(name.text)
		return nil
	}
	return w.checkNeeds(name, called)
}

// checkNeeds requires that the functions are defined which a called function needs.
func (w *walker) checkNeeds(name word, called *function) *refusal {
	if called.definedAt == w.needs {
		return nil
	}
	all, refused := w.allNeeds(name, called)
	if refused != nil {
		return refused
	}
	defined := true
	for _, needed := range all {
		if w.scope.has(functionKey(needed)) {
			defined = defined && w.script.names[functionKey(needed)]
			continue
		}
		defined = false
		if w.scope.body == nil {
			return refuse(name, "the function "+quote(name.text)+" calls "+quote(needed)+", which is not certainly defined yet", "define all functions, each on a line of its own, before the first call")
		}
		w.need(needed)
	}
	if defined {
		called.definedAt = w.needs
	}
	return nil
}

// need notes that the surrounding function needs another one.
func (w *walker) need(name string) {
	if needs := w.scope.body.needs; !needs[name] {
		needs[name] = true
		w.needs++
	}
}

// allNeeds returns the functions that a function needs, directly and indirectly, in a stable order.
func (w *walker) allNeeds(at word, f *function) ([]string, *refusal) {
	seen := map[string]bool{}
	queue := sortedKeys(f.needs)
	for i := 0; i < len(queue); i++ {
		if !seen[queue[i]] {
			seen[queue[i]] = true
			queue = append(queue, sortedKeys(w.functions[queue[i]].needs)...)
		}
	}
	return sortedKeys(seen), w.spend(at, stepsPerNeed*len(queue))
}

// stepsPerNeed is how many times as long as parsing a byte it takes to check a need.
const stepsPerNeed = 4

func (w *walker) funcDecl(cmd *syntax.FuncDecl) *refusal {
	if cmd.Name == nil {
		return w.refuseAt(cmd, "a function without a name can't be checked", "name it")
	}
	name := cmd.Name.Value
	f := w.functions[name]
	_, builtin := w.policy.shellBuiltins[name]
	switch {
	case len(w.functions) > maxFunctions:
		return w.refuseAt(cmd, "the script defines too many functions", "split it into several calls")
	case builtin || isReserved(name) || w.policy.binaries.listed[name]:
		return w.refuseAt(cmd, "the function "+quote(name)+" takes the name of a listed program or of a builtin", "choose another name")
	case !isFunctionName(name):
		return w.refuseAt(cmd, "the name of the function "+quote(name)+" is not plain", "use letters, digits, underscores and hyphens")
	case f == nil || f.needs != nil:
		return w.refuseAt(cmd, "the function "+quote(name)+" is defined more than once", "give each function its own name")
	}
	if !isFunctionBody(cmd.Body) {
		return w.refuseAt(cmd, "the body of the function "+quote(name)+" is not a group of its own", "write { … } around it, and nothing after it in the same command")
	}
	f.needs = map[string]bool{}
	outer := w.scope
	w.scope = &scope{parent: outer, body: f}
	defer func() { w.scope = outer }()
	if refused := w.statement(cmd.Body); refused != nil {
		return refused
	}
	outer.define(functionKey(name), true)
	return nil
}

// maxFunctions bounds the number of functions of a script.
const maxFunctions = 200

// isFunctionBody reports whether the definition ends with its body. If a pipe follows the body, bash defines the function
// in another process, while the parser takes the pipe for a part of the body.
func isFunctionBody(body *syntax.Stmt) bool {
	return !body.Negated && !body.Background && isGroup(body)
}

// isGroup reports whether the statement is a group in braces or parentheses.
func isGroup(stmt *syntax.Stmt) bool {
	switch stmt.Cmd.(type) {
	case *syntax.Block, *syntax.Subshell:
		return true
	}
	return false
}

// isFunctionName accepts names that are valid in every mode of bash, so that the definition can't fail.
func isFunctionName(name string) bool {
	return isName(strings.ReplaceAll(name, "-", "_"))
}

func isReserved(name string) bool {
	switch name {
	case "if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while", "until", "do", "done", "in",
		"function", "time", "coproc":
		return true
	}
	return false
}
