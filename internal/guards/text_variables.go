package guards

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// write is how a script sets a variable.
type write struct {
	count int
	// text says that a value may be something other than a number.
	text bool
	// value is the text of a plain assignment, if it is a short literal.
	value string
}

// maxValue bounds the values that are followed.
const maxValue = 64

// writers are commands whose arguments are names of variables that they set.
const writers = "read getopts printf unset wait export readonly local declare typeset mapfile readarray let"

// collectWrites notes how the script sets its variables, wherever that is.
func (w *walker) collectWrites(file *syntax.File) {
	syntax.Walk(file, func(node syntax.Node) bool {
		switch node := node.(type) {
		case *syntax.CallExpr:
			w.collectCall(node)
		case *syntax.DeclClause:
			w.taintAssigns(node.Args)
		case *syntax.WordIter:
			w.collectLoop(node)
		case *syntax.ParamExp:
			if node.Exp != nil && (node.Exp.Op == syntax.AssignUnset || node.Exp.Op == syntax.AssignUnsetOrNull) && node.Param != nil {
				w.taint(node.Param.Value)
			}
		case *syntax.BinaryArithm:
			if name, plain := operandName(node.X); plain && assigns(node.Op) {
				w.noteWrite(name)
			}
		case *syntax.UnaryArithm:
			if name, plain := operandName(node.X); plain && (node.Op == syntax.Inc || node.Op == syntax.Dec) {
				w.noteWrite(name)
			}
		}
		return true
	})
}

func (w *walker) noteWrite(name string) *write {
	if w.writes[name] == nil {
		w.writes[name] = &write{}
	}
	w.writes[name].count++
	return w.writes[name]
}

func (w *walker) taint(name string) {
	if isName(name) {
		w.noteWrite(name).text = true
	}
}

func (w *walker) taintAssigns(assigns []*syntax.Assign) {
	for _, assign := range assigns {
		if assign.Name != nil {
			w.taint(assign.Name.Value)
			w.taint(assign.Name.Value)
		}
	}
}

func (w *walker) collectLoop(loop *syntax.WordIter) {
	written := w.noteWrite(loop.Name.Value)
	written.text = written.text || len(loop.Items) == 0
	for _, item := range loop.Items {
		written.text = written.text || !isNumericItem(item)
	}
}

func (w *walker) collectCall(call *syntax.CallExpr) {
	for _, assign := range call.Assigns {
		if assign.Name == nil {
			continue
		}
		written := w.noteWrite(assign.Name.Value)
		plain := assign.Index == nil && assign.Array == nil && !assign.Append && len(call.Args) == 0
		written.text = written.text || !plain || !isNumericValue(assign.Value)
		if plain {
			written.value = safeText(assign.Value)
		}
	}
	for i := 0; i < min(3, len(call.Args)); i++ {
		if w.policy.writers.has(w.read(call.Args[i]).text) {
			w.taintArguments(call.Args[i:])
			return
		}
	}
}

// taintArguments takes each argument for the name of a variable, also one that is attached to an option.
func (w *walker) taintArguments(args []*syntax.Word) {
	for _, arg := range args {
		text, _, _ := strings.Cut(w.read(arg).text, "=")
		if len(text) > 2 && text[0] == '-' {
			text = text[2:]
		}
		w.taint(text)
		w.taint(text)
	}
}

// define notes the variables that a statement at the top level certainly sets: a plain assignment.
func (w *walker) define(stmt *syntax.Stmt) {
	call, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) > 0 || len(stmt.Redirs) > 0 || stmt.Background || stmt.Negated {
		return
	}
	for _, assign := range call.Assigns {
		plain := assign.Name != nil && assign.Index == nil && assign.Array == nil && !assign.Append
		if !plain || !isNumericValue(assign.Value) && safeText(assign.Value) == "" || isDivision(assign.Value) {
			return
		}
	}
	for _, assign := range call.Assigns {
		w.defined[assign.Name.Value] = true
	}
}

// isDivision reports whether the value is arithmetic that may fail, so that the variable keeps its old value.
func isDivision(value *syntax.Word) bool {
	fails := false
	syntax.Walk(value, func(node syntax.Node) bool {
		if operation, ok := node.(*syntax.BinaryArithm); ok {
			switch operation.Op {
			case syntax.Add, syntax.Sub, syntax.Mul:
			default:
				fails = true
			}
		}
		return true
	})
	return fails
}

func (w *walker) isNumeric(name string) bool {
	return w.writes[name] != nil && !w.writes[name].text && w.defined[name]
}

// knownValue returns the value of a variable that the script sets once, in a plain assignment before.
func (w *walker) knownValue(name string) string {
	if written := w.writes[name]; written != nil && written.count == 1 && w.defined[name] {
		return written.value
	}
	return ""
}

// pathVariable reports whether HOME or PWD holds an absolute path: neither the call nor the script sets it.
func (w *walker) pathVariable(name string) bool {
	if w.homeSet || w.writes[name] != nil {
		return false
	}
	for _, variable := range w.env {
		if variable.Name == name {
			return false
		}
	}
	return true
}

// safeText returns the text of a short literal word that is one word wherever it is expanded.
func safeText(node *syntax.Word) string {
	if node == nil || len(node.Parts) != 1 {
		return ""
	}
	text := node.Lit()
	switch part := node.Parts[0].(type) {
	case *syntax.SglQuoted:
		if !part.Dollar {
			text = part.Value
		}
	case *syntax.DblQuoted:
		if len(part.Parts) == 1 && !part.Dollar {
			if lit, ok := part.Parts[0].(*syntax.Lit); ok {
				text = lit.Value
			}
		}
	}
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,@%+-"
	if len(text) > maxValue || strings.Trim(text, safe) != "" || strings.HasPrefix(text, "-") {
		return ""
	}
	return text
}

// isDecimal accepts numbers without leading zeros, which could make them invalid octal numbers.
func isDecimal(text string) bool {
	return text != "" && len(text) < 19 && strings.Trim(text, "0123456789") == "" && (text[0] != '0' || text == "0")
}

// isNumericValue reports whether a value is a number, or empty.
func isNumericValue(node *syntax.Word) bool {
	if node == nil || len(node.Parts) != 1 {
		return false
	}
	return isDecimal(node.Lit()) || isNumericPart(node.Parts[0])
}

func isNumericPart(part syntax.WordPart) bool {
	switch part := part.(type) {
	case *syntax.ArithmExp:
		return true
	case *syntax.ParamExp:
		return part.Length && part.Param != nil && !part.Excl || isPlain(part) && numericParameter(part.Param.Value)
	}
	return false
}

// isNumericItem reports whether an item of a loop is a number, or a range of numbers.
func isNumericItem(node *syntax.Word) bool {
	text := strings.TrimSuffix(strings.TrimPrefix(node.Lit(), "{"), "}")
	from, to, isRange := strings.Cut(text, "..")
	return isDecimal(node.Lit()) || isRange && isDecimal(from) && isDecimal(to)
}

// setByBash are variables that bash sets or evaluates itself.
const setByBash = "_ BASH COPROC DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD HOSTNAME HOSTTYPE LINENO LINES COLUMNS MACHTYPE " +
	"MAPFILE OLDPWD OPTARG OPTERR OPTIND OSTYPE PIPESTATUS PPID PWD RANDOM READLINE_LINE READLINE_POINT REPLY SECONDS SHLVL SRANDOM UID TMOUT"

// assignable refuses variables that a script may not set.
func (w *walker) assignable(node syntax.Node, name string) *refusal {
	if w.kind == scriptOfTrap {
		return w.refuseAt(node, "a trap may change the variable "+quote(name)+" at any time", "write to a file instead")
	}
	if what := w.policy.notAssignable(name); what != "" {
		return w.refuseAt(node, "the script assigns the variable "+quote(name)+", which "+what, "don't assign it, or choose another name")
	}
	return nil
}

func (p *Policy) notAssignable(name string) string {
	switch {
	case !isName(name):
		return "is not a plain name"
	case p.protectedName(name):
		return "is protected because it can change which program runs"
	case p.setByBash.has(name):
		return "bash sets or evaluates itself"
	}
	return ""
}

// protectedName reports whether scripts, and launchers like env, may not set the variable.
func (p *Policy) protectedName(name string) bool {
	return p.protected.has(name) || p.shellEnv.has(name) || p.launchEnvDenies(name)
}
