package guards

import "mvdan.cc/sh/v3/syntax"

// scope holds what is certainly defined at one point of a script: functions and variables.
type scope struct {
	parent *scope
	names  map[string]bool
	// lineCannotFail says that nothing so far can make bash abort the line.
	lineCannotFail bool
	// body is the function whose body this is in, if any.
	body *function
}

func functionKey(name string) string { return "function " + name }
func variableKey(name string) string { return "variable " + name }
func keyedKey(name string) string    { return "keyed " + name }

func (s *scope) has(key string) bool {
	for ; s != nil; s = s.parent {
		if s.names[key] {
			return true
		}
	}
	return false
}

// define notes that key holds for the rest of the line. It holds beyond the line if certain is true and nothing before it
// in the line can fail.
func (s *scope) define(key string, certain bool) {
	s.add(key)
	if certain && s.lineCannotFail && s.parent != nil {
		s.parent.add(key)
	}
}

func (s *scope) add(key string) {
	if s.names == nil {
		s.names = map[string]bool{}
	}
	s.names[key] = true
}

func (w *walker) isNumeric(name string) bool {
	fact := w.facts[name]
	return fact != nil && !fact.text && w.scope.has(variableKey(name))
}

// knownValue returns the value of a variable that the script has assigned before, only once, and to a safe literal.
func (w *walker) knownValue(name string) string {
	fact := w.facts[name]
	if fact == nil || fact.assigned != 1 || !w.scope.has(variableKey(name)) {
		return ""
	}
	return fact.value
}

// pathVariable reports whether HOME or PWD holds an absolute path: neither the call nor the script sets it.
func (w *walker) pathVariable(name string) bool {
	if w.homeSet || w.facts[name] != nil {
		return false
	}
	for _, variable := range w.env {
		if variable.Name == name {
			return false
		}
	}
	return true
}

// cannotFail reports whether a statement can't make bash abort its line. Expansions, arithmetic and read-only variables
// can; programs that fail can't.
func (w *walker) cannotFail(stmt *syntax.Stmt) bool {
	for _, redirect := range stmt.Redirs {
		if redirect.Hdoc != nil || !w.plainWord(redirect.Word) {
			return false
		}
	}
	switch cmd := stmt.Cmd.(type) {
	case nil:
		return true
	case *syntax.FuncDecl:
		return true
	case *syntax.BinaryCmd:
		return w.cannotFail(cmd.X) && w.cannotFail(cmd.Y)
	case *syntax.CallExpr:
		return w.plainCall(cmd)
	case *syntax.DeclClause:
		return w.plainAssigns(cmd.Args)
	default:
		return false
	}
}

func (w *walker) plainCall(call *syntax.CallExpr) bool {
	if !w.plainAssigns(call.Assigns) {
		return false
	}
	for _, arg := range call.Args {
		if !w.plainWord(arg) {
			return false
		}
	}
	if len(call.Args) == 0 {
		return true
	}
	name := call.Args[0].Lit()
	switch name {
	case "", "eval", "trap", "command", "builtin", "exec", "read", "printf", "unset", "getopts":
		return false
	}
	return w.functions[name] == nil
}

func (w *walker) plainAssigns(assigns []*syntax.Assign) bool {
	for _, assign := range assigns {
		if !w.plainAssign(assign) {
			return false
		}
	}
	return true
}

func (w *walker) plainAssign(assign *syntax.Assign) bool {
	if assign.Index != nil || assign.Array != nil && len(assign.Array.Elems) > 0 && !w.plainArray(assign.Array) {
		return false
	}
	if assign.Name != nil && !w.writable(assign.Name.Value) {
		return false
	}
	return assign.Value == nil || w.plainWord(assign.Value)
}

func (w *walker) plainArray(array *syntax.ArrayExpr) bool {
	for _, element := range array.Elems {
		if element.Index != nil || element.Value != nil && !w.plainWord(element.Value) {
			return false
		}
	}
	return true
}

// writable reports whether nothing made the variable read-only.
func (w *walker) writable(name string) bool {
	switch name {
	case "UID", "EUID", "PPID":
		return false
	}
	fact := w.facts[name]
	return fact == nil || !fact.readonly || fact.assigned == 1
}

// plainWord reports whether expanding the word can't fail.
func (w *walker) plainWord(node *syntax.Word) bool {
	for _, part := range node.Parts {
		if !w.plainPart(part) {
			return false
		}
	}
	return true
}

func (w *walker) plainPart(part syntax.WordPart) bool {
	switch part := part.(type) {
	case *syntax.Lit, *syntax.SglQuoted:
		return true
	case *syntax.DblQuoted:
		for _, inner := range part.Parts {
			if !w.plainPart(inner) {
				return false
			}
		}
		return true
	case *syntax.ParamExp:
		return isPlain(part) || part.Length && part.Index == nil
	case *syntax.ArithmExp:
		return arithmeticCannotFail(part.X)
	case *syntax.CmdSubst:
		return true
	default:
		return false
	}
}

// arithmeticCannotFail reports whether checked arithmetic can't fail: it has no division and no power.
func arithmeticCannotFail(expr syntax.ArithmExpr) bool {
	switch expr := expr.(type) {
	case nil:
		return true
	case *syntax.Word:
		return isDecimal(expr.Lit()) || isName(expr.Lit()) || isNumericWord(expr) || len(expr.Parts) == 1 && isPlainParam(expr.Parts[0])
	case *syntax.ParenArithm:
		return arithmeticCannotFail(expr.X)
	case *syntax.UnaryArithm:
		return arithmeticCannotFail(expr.X)
	case *syntax.BinaryArithm:
		switch expr.Op {
		case syntax.Quo, syntax.Rem, syntax.Pow, syntax.QuoAssgn, syntax.RemAssgn:
			return false
		}
		return arithmeticCannotFail(expr.X) && arithmeticCannotFail(expr.Y)
	default:
		return false
	}
}

func isPlainParam(part syntax.WordPart) bool {
	param, ok := part.(*syntax.ParamExp)
	return ok && isPlain(param)
}
