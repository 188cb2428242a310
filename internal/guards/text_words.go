package guards

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// words checks what expanding the words runs.
func (w *walker) words(nodes []*syntax.Word) *refusal {
	for _, node := range nodes {
		if refused := w.word(node); refused != nil {
			return refused
		}
	}
	return nil
}

func (w *walker) word(node *syntax.Word) *refusal {
	if node == nil {
		return nil
	}
	return w.parts(node.Parts, false)
}

func (w *walker) parts(parts []syntax.WordPart, quoted bool) *refusal {
	for _, part := range parts {
		if refused := w.part(part, quoted); refused != nil {
			return refused
		}
	}
	return nil
}

// part checks one part of a word; quoted says that it is in double quotes or in a here-document.
func (w *walker) part(part syntax.WordPart, quoted bool) *refusal {
	switch part := part.(type) {
	case *syntax.Lit:
		return w.lit(part, quoted)
	case *syntax.SglQuoted:
		return nil
	case *syntax.DblQuoted:
		if part.Dollar {
			return w.refuseAt(part, "$\"…\" is translated by bash when it runs", "leave the dollar sign out")
		}
		return w.parts(part.Parts, true)
	case *syntax.ParamExp:
		return w.param(part)
	case *syntax.CmdSubst:
		return w.substitution(part)
	case *syntax.ArithmExp:
		if part.Bracket || part.Unsigned {
			return w.refuseAt(part, "the old form of arithmetic "+quote(w.sourceOf(part))+" can't be checked", "use $(( ))")
		}
		return w.arithmetic(part.X)
	case *syntax.ProcSubst:
		return w.refuseAt(part, "process substitution is read differently by parsers", "write to a file first, or use a pipe")
	default:
		return w.refuseAt(part, quote(w.sourceOf(part))+" is not in the part of bash that can be checked", "use a plain pattern, or case")
	}
}

// lit refuses text that the parser takes for literal and another may take for an expansion.
func (w *walker) lit(lit *syntax.Lit, quoted bool) *refusal {
	value := lit.Value
	for i := 0; i < len(value); i++ {
		c, next := value[i], byte(0)
		if i+1 < len(value) {
			next = value[i+1]
		}
		switch {
		case c == '\\':
			i++
		case c == '`', c == '$' && strings.IndexByte("({[`", next) >= 0, c == '$' && !quoted && (next == '\'' || next == '"'), !quoted && (c == '<' || c == '>'):
			return w.refuseAt(lit, "an expansion in "+quote(value)+" can't be checked", "write it in a simpler way, or in single quotes")
		}
	}
	return nil
}

func (w *walker) substitution(part *syntax.CmdSubst) *refusal {
	if part.TempFile || part.ReplyVar {
		return w.refuseAt(part, "this form of command substitution is not one of every bash", "use $(command)")
	}
	if part.Backquotes && (w.kind != scriptOfCall && w.kind != scriptAsPrinted || strings.ContainsAny(strings.Trim(w.sourceOf(part), "`"), "\\`#\n")) {
		return w.refuseAt(part, "quoting inside of backquotes can't be checked", "use $(command)")
	}
	w.substitutions++
	defer func() { w.substitutions-- }()
	return w.statements(part.Stmts)
}

// param accepts ${name} with the operators on which all shells agree, and plain words as their operands.
func (w *walker) param(p *syntax.ParamExp) *refusal {
	unclear := p.Flags != nil || p.Width || p.IsSet || p.NestedParam != nil || len(p.Modifiers) > 0 || p.Param == nil || p.Excl || p.Names != 0
	if unclear {
		return w.refuseAt(p, "the expansion "+quote(w.sourceOf(p))+" evaluates the text of a variable, or is not one of bash", "name the variable itself, as in \"$name\"")
	}
	if p.Index != nil {
		if refused := w.subscript(p.Index); refused != nil {
			return refused
		}
	}
	if p.Slice != nil {
		if refused := firstRefusal(w.arithmetic(p.Slice.Offset), w.arithmetic(p.Slice.Length)); refused != nil {
			return refused
		}
	}
	if p.Repl != nil {
		if refused := firstRefusal(w.operandWord(p.Repl.Orig), w.operandWord(p.Repl.With)); refused != nil {
			return refused
		}
	}
	if p.Exp == nil {
		return nil
	}
	switch p.Exp.Op {
	case syntax.AssignUnset, syntax.AssignUnsetOrNull, syntax.OtherParamOps:
		return w.refuseAt(p, "the expansion "+quote(w.sourceOf(p))+" assigns or evaluates text", "use ${name:-default}, and assign in a statement of its own")
	}
	return w.operandWord(p.Exp.Word)
}

// operandWord checks a word inside of ${…}, where shells disagree on quotes. It accepts plain text and plain variables.
func (w *walker) operandWord(node *syntax.Word) *refusal {
	if node == nil {
		return nil
	}
	for _, part := range node.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			if !strings.ContainsAny(part.Value, "\\`$'\"<>(){}\n") {
				continue
			}
		case *syntax.ParamExp:
			if isPlain(part) {
				continue
			}
		}
		return w.refuseAt(part, "within ${…}, "+quote(w.sourceOf(part))+" is read differently by shells", "put the text into a variable first, and use the variable there")
	}
	return nil
}

// subscript checks the index of an array, which bash evaluates as arithmetic.
func (w *walker) subscript(index syntax.ArithmExpr) *refusal {
	if node, ok := index.(*syntax.Word); ok && (node.Lit() == "@" || node.Lit() == "*") {
		return nil
	}
	return w.arithmetic(index)
}

const arithmeticFix = "use numbers, or variables that the script sets to numbers at its top level before, and nowhere to anything else; awk adds up what a file holds"

// arithmetic accepts numbers, and variables that certainly hold numbers. Other values are evaluated by bash as
// expressions, whose subscripts may run commands.
func (w *walker) arithmetic(expr syntax.ArithmExpr) *refusal {
	switch expr := expr.(type) {
	case nil:
		return nil
	case *syntax.Word:
		return w.operand(expr)
	case *syntax.ParenArithm:
		return w.arithmetic(expr.X)
	case *syntax.UnaryArithm:
		if expr.Op == syntax.Inc || expr.Op == syntax.Dec {
			return w.assignedOperand(expr.X)
		}
		return w.arithmetic(expr.X)
	case *syntax.BinaryArithm:
		if assigns(expr.Op) {
			return firstRefusal(w.assignedOperand(expr.X), w.arithmetic(expr.Y))
		}
		return firstRefusal(w.arithmetic(expr.X), w.arithmetic(expr.Y))
	default:
		return w.refuseAt(expr, quote(w.sourceOf(expr))+" can't be checked as arithmetic", arithmeticFix)
	}
}

func assigns(op syntax.BinAritOperator) bool {
	switch op {
	case syntax.Assgn, syntax.AddAssgn, syntax.SubAssgn, syntax.MulAssgn, syntax.QuoAssgn, syntax.RemAssgn,
		syntax.AndAssgn, syntax.OrAssgn, syntax.XorAssgn, syntax.ShlAssgn, syntax.ShrAssgn:
		return true
	}
	return false
}

func operandName(expr syntax.ArithmExpr) (string, bool) {
	node, ok := expr.(*syntax.Word)
	if !ok {
		return "", false
	}
	return node.Lit(), isName(node.Lit())
}

// assignedOperand accepts a variable that holds a number already: whether an assignment in arithmetic runs isn't clear.
func (w *walker) assignedOperand(expr syntax.ArithmExpr) *refusal {
	name, plain := operandName(expr)
	if !plain {
		return w.refuseAt(expr, quote(w.sourceOf(expr))+" can't be checked as the target of an assignment", "assign a plain variable")
	}
	return firstRefusal(w.assignable(expr, name), w.operand(expr.(*syntax.Word)))
}

func (w *walker) operand(node *syntax.Word) *refusal {
	if isName(node.Lit()) {
		return w.numericName(node, node.Lit())
	}
	for _, part := range node.Parts {
		if refused := w.operandPart(part); refused != nil {
			return refused
		}
	}
	return nil
}

func (w *walker) operandPart(part syntax.WordPart) *refusal {
	switch part := part.(type) {
	case *syntax.Lit:
		const digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ#"
		if part.Value != "" && isDigit(part.Value[0]) && strings.Trim(part.Value, digits) == "" {
			return nil
		}
	case *syntax.ParamExp:
		if isNumericPart(part) {
			return w.param(part)
		}
		if isPlain(part) {
			return w.numericName(part, part.Param.Value)
		}
	case *syntax.ArithmExp:
		return w.part(part, false)
	}
	return w.refuseAt(part, "in arithmetic, the text of "+quote(w.sourceOf(part))+" would be evaluated again", arithmeticFix)
}

func (w *walker) numericName(node syntax.Node, name string) *refusal {
	if w.isNumeric(name) {
		return nil
	}
	return w.refuseAt(node, "in arithmetic, the text of the variable "+quote(name)+" would be evaluated again, and it is not known to be a number", arithmeticFix)
}

// test checks [[ ]]. Comparing numbers evaluates both sides as arithmetic; -v evaluates the subscript of a name.
func (w *walker) test(expr syntax.TestExpr) *refusal {
	switch expr := expr.(type) {
	case *syntax.Word:
		return w.word(expr)
	case *syntax.ParenTest:
		return w.test(expr.X)
	case *syntax.UnaryTest:
		if expr.Op == syntax.TsVarSet || expr.Op == syntax.TsRefVar {
			return w.refuseAt(expr, "-v evaluates the subscript in "+quote(w.sourceOf(expr.X)), "use [ -n \"${name+set}\" ]")
		}
		return w.test(expr.X)
	case *syntax.BinaryTest:
		return w.binaryTest(expr)
	default:
		return w.refuseAt(expr, quote(w.sourceOf(expr))+" can't be checked", "use a simpler test")
	}
}

func (w *walker) binaryTest(expr *syntax.BinaryTest) *refusal {
	switch expr.Op {
	case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
		return firstRefusal(w.comparedNumber(expr.X), w.comparedNumber(expr.Y))
	case syntax.TsReMatch:
		if text := w.sourceOf(expr.Y); strings.ContainsAny(text, "()") && strings.ContainsAny(text, " \t\n'\"`\\;&<>#") {
			return w.refuseAt(expr.Y, "the regular expression "+quote(text)+" contains brackets with quotes or white space and can't be checked", "put it into a variable and match against $name")
		}
	}
	return firstRefusal(w.test(expr.X), w.test(expr.Y))
}

func (w *walker) comparedNumber(side syntax.TestExpr) *refusal {
	node, ok := side.(*syntax.Word)
	if !ok {
		return w.refuseAt(side, quote(w.sourceOf(side))+" can't be checked as a number", arithmeticFix)
	}
	refused := w.operand(node)
	if refused != nil {
		refused.fix = "use [ … ] instead of [[ … ]] to compare what may be no number"
	}
	return refused
}

func (w *walker) redirect(redirect *syntax.Redirect) *refusal {
	if redirect.N != nil && !isDecimal(redirect.N.Value) {
		return w.refuseAt(redirect, "the file descriptor "+quote(redirect.N.Value)+" can't be checked", "use a number")
	}
	switch redirect.Op {
	case syntax.Hdoc:
		return w.hereDocument(redirect)
	case syntax.DplIn, syntax.DplOut:
		target := redirect.Word.Lit()
		if target != "-" && !isDecimal(target) {
			return w.refuseAt(redirect, "bash expands the target of "+quote(w.sourceOf(redirect))+" twice, or takes a part of it for a command", "write a number, or use > for a file")
		}
		return nil
	case syntax.RdrOut, syntax.AppOut, syntax.RdrIn, syntax.RdrInOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll, syntax.WordHdoc:
		return w.word(redirect.Word)
	default:
		return w.refuseAt(redirect, "the redirection "+quote(w.sourceOf(redirect))+" is not in the part of bash that can be checked", "use <, >, >> or <<EOF")
	}
}

// hereDocument accepts a here-document that begins on the line after its command and ends at the first line that is its
// delimiter, so that no shell can see another end.
func (w *walker) hereDocument(redirect *syntax.Redirect) *refusal {
	delimiter := w.read(redirect.Word)
	switch {
	case w.substitutions > 0 || w.kind == scriptOfLauncher || w.kind == scriptOfTrap:
		return w.refuseAt(redirect, "shells disagree on the end of a here-document within another command", "write the text to a file first and name the file, or pass it by standard input; git commit takes -F file, and -m several times")
	case !delimiter.known || strings.Trim(delimiter.text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" || delimiter.text == "":
		return w.refuseAt(redirect, "the here-document's delimiter "+quote(delimiter.source)+" is not plain", "use a word like EOF")
	case redirect.Hdoc == nil || redirect.Hdoc.Pos().Line() != redirect.Pos().Line()+1:
		return w.refuseAt(redirect, "the here-document doesn't begin on the line after its command", "put it on a line of its own, one for each command, and not empty")
	}
	body := w.sourceOf(redirect.Hdoc)
	if body == delimiter.text || strings.HasPrefix(body, delimiter.text+"\n") || strings.Contains(body, "\n"+delimiter.text+"\n") {
		return w.refuseAt(redirect, "the delimiter "+quote(delimiter.text)+" stands within the here-document", "use another delimiter")
	}
	if redirect.Word.Lit() != delimiter.text {
		return nil
	}
	for _, part := range redirect.Hdoc.Parts {
		if _, isText := part.(*syntax.Lit); !isText && strings.Contains(w.sourceOf(part), "\n") {
			return w.refuseAt(part, "an expansion in a here-document spans lines", "quote the delimiter, as in <<'EOF', or put the text into a variable first")
		}
	}
	return w.parts(redirect.Hdoc.Parts, true)
}
