package guards

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// variable is what all assignments of a script say about a variable.
type variable struct {
	assigned int
	text     bool   // some assignment sets it to something that may not be a number
	value    string // of its only assignment, if that is a safe literal
	readonly bool
	array    bool // declared or assigned as an array somewhere
	keyed    bool // declared as an associative array
	unkeyed  bool // declared or assigned as anything else
}

// variables are the facts about the variables of a script, by name.
type variables map[string]*variable

func (v variables) get(name string) *variable {
	if v[name] == nil {
		v[name] = &variable{}
	}
	return v[name]
}

// assign notes one assignment; numeric says that its value is a decimal number or empty.
func (v variables) assign(name string, numeric bool, value string) {
	fact := v.get(name)
	fact.assigned++
	fact.text = fact.text || !numeric
	fact.value = value
}

// collect notes every assignment below node.
func (v variables) collect(w *walker, node syntax.Node) {
	syntax.Walk(node, func(node syntax.Node) bool {
		switch node := node.(type) {
		case *syntax.CallExpr:
			for _, assign := range node.Assigns {
				v.assignment(assign)
			}
			v.call(w, node)
		case *syntax.DeclClause:
			v.declaration(node)
		case *syntax.ForClause:
			v.loop(node)
		case *syntax.ParamExp:
			if node.Param != nil && node.Exp != nil && (node.Exp.Op == syntax.AssignUnset || node.Exp.Op == syntax.AssignUnsetOrNull) {
				v.assign(node.Param.Value, false, "")
			}
		case *syntax.BinaryArithm:
			v.arithmetic(node.X)
		case *syntax.UnaryArithm:
			v.arithmetic(node.X)
		case *syntax.Redirect:
			if node.N != nil {
				v.assign(strings.Trim(node.N.Value, "{}"), true, "")
			}
		case *syntax.FuncDecl:
			if node.Name != nil && w.functions[node.Name.Value] == nil {
				w.functions[node.Name.Value] = &function{}
			}
		case *syntax.CoprocClause:
			v.assign("COPROC", false, "")
			if node.Name != nil {
				v.assign(node.Name.Lit(), false, "")
			}
		}
		return true
	})
}

// arithmetic notes an operand as if it were assigned: the result of arithmetic is always a number.
func (v variables) arithmetic(operand syntax.ArithmExpr) {
	if name, ok := operand.(*syntax.Word); ok && isName(name.Lit()) {
		v.assign(name.Lit(), true, "")
	}
}

func (v variables) assignment(assign *syntax.Assign) {
	if assign.Name == nil {
		return
	}
	name := assign.Name.Value
	numeric, value := true, ""
	if assign.Value != nil {
		numeric, value = isNumericWord(assign.Value), safeText(assign.Value)
	}
	if assign.Append {
		numeric, value = numeric && assign.Value != nil && !strings.HasPrefix(assign.Value.Lit(), "-"), ""
	}
	if assign.Array != nil {
		for _, element := range assign.Array.Elems {
			numeric = numeric && (element.Value == nil || isNumericWord(element.Value))
		}
	}
	if assign.Array != nil || assign.Index != nil {
		v.get(name).array = true
		value = ""
	}
	if assign.Index == nil {
		v.get(name).unkeyed = true
	}
	v.assign(name, numeric, value)
}

func (v variables) declaration(decl *syntax.DeclClause) {
	flags := declFlags(decl)
	for _, assign := range decl.Args {
		if assign.Name == nil {
			v.word(assign.Value)
			continue
		}
		if assign.Naked && decl.Variant.Value == "export" {
			continue
		}
		fact := v.get(assign.Name.Value)
		before := fact.unkeyed
		v.assignment(assign)
		fact.array = fact.array || strings.ContainsAny(flags, "aA")
		if strings.Contains(flags, "A") {
			fact.keyed, fact.unkeyed = true, before
		}
		if strings.Contains(flags, "r") || decl.Variant.Value == "readonly" {
			fact.readonly = true
			fact.text = fact.text || assign.Naked
		}
	}
}

// declFlags are the letters of a declaration's options.
func declFlags(decl *syntax.DeclClause) string {
	var flags strings.Builder
	for _, assign := range decl.Args {
		if assign.Name == nil && assign.Value != nil && strings.HasPrefix(assign.Value.Lit(), "-") {
			flags.WriteString(assign.Value.Lit()[1:])
		}
	}
	return flags.String()
}

func (v variables) loop(loop *syntax.ForClause) {
	iter, ok := loop.Loop.(*syntax.WordIter)
	if !ok {
		return
	}
	numeric := !loop.Select && iter.InPos.IsValid()
	for _, item := range iter.Items {
		numeric = numeric && (isNumericWord(item) || isNumericRange(item.Lit()))
	}
	v.get(iter.Name.Value).unkeyed = true
	v.assign(iter.Name.Value, numeric, "")
}

// call notes the variables that builtins assign. It takes each word that may be a name for one.
func (v variables) call(w *walker, call *syntax.CallExpr) {
	if len(call.Args) == 0 || isPlainCommand(call.Args[0]) {
		return
	}
	assigns := false
	for _, arg := range call.Args {
		text := w.read(arg)
		switch {
		case !assigns && isAssigner(text.text):
			assigns = true
			v.assign("REPLY", false, "")
			v.assign("OPTARG", false, "")
		case assigns:
			v.text(text.text)
		}
		v.innerScript(w, text, call)
	}
}

// innerScript notes the assignments in the text of eval or trap, to a bounded depth. A text that it skips is refused when
// it is checked.
func (v variables) innerScript(w *walker, name word, call *syntax.CallExpr) {
	if w.inner[call] != nil || w.collecting > maxDepth {
		return
	}
	inner := w.innerScript(name, call)
	if inner == nil {
		return
	}
	w.collecting++
	v.collect(w, inner)
	w.collecting--
}

// isPlainCommand reports whether the name of the command is literal, and isn't that of a builtin that assigns variables
// or runs a text.
func isPlainCommand(name *syntax.Word) bool {
	text := name.Lit()
	if text == "" || strings.Contains(text, `\`) || isAssigner(text) {
		return false
	}
	switch text {
	case "eval", "trap", "command", "builtin", "exec":
		return false
	}
	return true
}

func isAssigner(name string) bool {
	switch name {
	case "read", "printf", "getopts", "wait", "mapfile", "readarray", "declare", "typeset", "local", "export", "readonly", "let", "unset":
		return true
	}
	return false
}

func (v variables) word(node *syntax.Word) {
	if node == nil {
		return
	}
	for _, part := range node.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			v.text(part.Value)
		case *syntax.SglQuoted:
			v.text(part.Value)
		case *syntax.DblQuoted:
			v.word(&syntax.Word{Parts: part.Parts})
		}
	}
}

// text notes the name at the start of an argument, also one that is attached to an option.
func (v variables) text(text string) {
	for start := 0; start < min(len(text), 4); start++ {
		end := start
		for end < len(text) && isName(text[start:end+1]) {
			end++
		}
		if end > start {
			fact := v.get(text[start:end])
			fact.unkeyed, fact.array = true, true
			v.assign(text[start:end], false, "")
		}
		if text[start] != '-' && text[0] != '-' {
			return
		}
	}
}

// isNumericWord reports whether the word is a plain decimal number, or an expansion that always gives one.
func isNumericWord(node *syntax.Word) bool {
	if text := node.Lit(); text != "" {
		return isDecimal(text)
	}
	if len(node.Parts) != 1 {
		return false
	}
	return isNumericPart(node.Parts[0])
}

func isNumericPart(part syntax.WordPart) bool {
	switch part := part.(type) {
	case *syntax.ArithmExp:
		return true
	case *syntax.SglQuoted:
		return part.Value == "" || isDecimal(part.Value)
	case *syntax.ParamExp:
		return part.Param != nil && (part.Length || isPlain(part) && numericParameter(part.Param.Value))
	case *syntax.DblQuoted:
		if len(part.Parts) == 0 {
			return true
		}
		if text, ok := part.Parts[0].(*syntax.Lit); ok {
			return len(part.Parts) == 1 && isDecimal(text.Value)
		}
		return len(part.Parts) == 1 && isNumericPart(part.Parts[0])
	default:
		return false
	}
}

// isDecimal accepts numbers without leading zeros, which could make them invalid octal numbers.
func isDecimal(text string) bool {
	text = strings.TrimPrefix(text, "-")
	if text == "" || len(text) > 18 || (text[0] == '0' && len(text) > 1) {
		return false
	}
	return strings.Trim(text, "0123456789") == ""
}

// isNumericRange accepts {1..10} and {1..10..2}.
func isNumericRange(text string) bool {
	inner, ok := strings.CutPrefix(text, "{")
	if !ok {
		return false
	}
	inner, ok = strings.CutSuffix(inner, "}")
	parts := strings.Split(inner, "..")
	for _, part := range parts {
		ok = ok && isDecimal(part)
	}
	return ok && (len(parts) == 2 || len(parts) == 3)
}

// safeText returns a literal that expands to one word, which isn't an option; or nothing.
func safeText(node *syntax.Word) string {
	text := node.Lit()
	if len(node.Parts) == 1 {
		switch part := node.Parts[0].(type) {
		case *syntax.SglQuoted:
			if !part.Dollar {
				text = part.Value
			}
		case *syntax.DblQuoted:
			if lit, ok := singleLit(part); ok {
				text = lit
			}
		}
	}
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+,-"
	if strings.Trim(text, plain) != "" || strings.HasPrefix(text, "-") {
		return ""
	}
	return text
}

func singleLit(part *syntax.DblQuoted) (string, bool) {
	if len(part.Parts) != 1 || part.Dollar {
		return "", false
	}
	lit, ok := part.Parts[0].(*syntax.Lit)
	if !ok {
		return "", false
	}
	return lit.Value, true
}
