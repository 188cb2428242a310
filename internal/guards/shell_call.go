package guards

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// call checks a simple command: its assignments, what its words expand, and what its name means.
func (w *walker) call(cmd *syntax.CallExpr) *refusal {
	for _, assign := range cmd.Assigns {
		if refused := w.assignment(assign, ""); refused != nil {
			return refused
		}
	}
	if refused := w.words(cmd.Args); refused != nil {
		return refused
	}
	if len(cmd.Args) == 0 {
		w.defineAssigned(cmd.Assigns)
		return nil
	}
	words := make([]word, len(cmd.Args))
	for i, arg := range cmd.Args {
		words[i] = w.read(arg)
	}
	return w.checkCommand(words, cmd)
}

// defineAssigned notes the variables that a statement of assignments sets.
func (w *walker) defineAssigned(assigns []*syntax.Assign) {
	for _, assign := range assigns {
		if assign.Name == nil || assign.Index != nil || assign.Append || assign.Naked {
			continue
		}
		w.scope.define(variableKey(assign.Name.Value), w.plainAssign(assign))
	}
}

// assignment checks an assignment; flags are the letters of the options of a declaration around it.
func (w *walker) assignment(assign *syntax.Assign, flags string) *refusal {
	name := assign.Name.Value
	if refused := w.assignable(assign, name); refused != nil {
		return refused
	}
	if name == "RANDOM" && !(assign.Value != nil && isNumericWord(assign.Value)) {
		return w.refuseAt(assign, "bash evaluates what is assigned to "+name+" as arithmetic", arithmeticFix)
	}
	if isLocaleName(name) && assign.Value != nil && !isASCII(w.source) {
		if value := w.read(assign.Value); !value.known || !plainLocale(value.text) {
			return w.refuseAt(assign, "the locale "+quote(value.source)+" changes how bash parses the rest of the script", "use a locale with UTF-8")
		}
	}
	if assign.Index != nil && !strings.Contains(flags, "A") {
		if refused := w.subscript(assign, name, assign.Index); refused != nil {
			return refused
		}
	}
	if assign.Array != nil {
		return w.array(name, assign.Array)
	}
	return w.word(assign.Value)
}

func (w *walker) array(name string, array *syntax.ArrayExpr) *refusal {
	for _, element := range array.Elems {
		if element.Index != nil {
			if refused := w.subscript(element, name, element.Index); refused != nil {
				return refused
			}
		}
		if refused := w.word(element.Value); refused != nil {
			return refused
		}
	}
	return nil
}

// assignable refuses protected variables, and targets that aren't names.
func (w *walker) assignable(node syntax.Node, name string) *refusal {
	if !isName(name) {
		return w.refuseAt(node, "the target of the assignment "+quote(w.sourceOf(node))+" is only known at run time", "assign a plain variable")
	}
	if w.policy.protectedName(name) {
		return w.refuseAt(node, "the script assigns the variable "+name+", which is protected because it can change which program runs", "don't assign it")
	}
	return nil
}

// protectedName reports whether scripts, and launchers like env, may not set the variable.
func (p *Policy) protectedName(name string) bool {
	return p.protected.has(name) || p.shellEnv.has(name) || p.launchEnv.has(name)
}

// checkCommand checks a command as what its name means to bash: a function, a builtin or a program.
func (w *walker) checkCommand(words []word, cmd *syntax.CallExpr) *refusal {
	name := words[0]
	if !name.known || name.derived {
		return refuse(name, "the name of the command "+quote(name.source)+" is only known at run time", "write the name itself")
	}
	if w.functions[name.text] != nil {
		return w.checkFunctionCall(name)
	}
	return w.checkBuiltin(words, cmd)
}

// checkBuiltin checks a command that is a builtin or a program.
func (w *walker) checkBuiltin(words []word, cmd *syntax.CallExpr) *refusal {
	b, ok := w.policy.shellBuiltins[words[0].text]
	if !ok || (w.lang == syntax.LangPOSIX && !b.posix) {
		return w.checkProgram(words)
	}
	if b.check != nil {
		return b.check(w, words, cmd)
	}
	if b.plain || b.listable && w.policy.binaries.listed[words[0].text] {
		return nil
	}
	return refuse(words[0], "the builtin "+quote(words[0].text)+" "+b.why, b.fix)
}
