package guards

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const arithmeticFix = "use numbers, or variables that the script itself sets to numbers before"

func (w *walker) arithmCmd(cmd *syntax.ArithmCmd) *refusal {
	if cmd.Unsigned {
		return w.refuseAt(cmd, "this form of arithmetic can't be checked", "use (( ))")
	}
	return w.arithmetic(cmd.X)
}

// arithmetic checks an expression. It accepts numbers, and variables whose values are certainly numbers. Other values are
// evaluated by bash as expressions, whose subscripts may run commands.
func (w *walker) arithmetic(expr syntax.ArithmExpr) *refusal {
	switch expr := expr.(type) {
	case nil:
		return nil
	case *syntax.Word:
		return w.operand(expr)
	case *syntax.ParenArithm:
		return w.arithmetic(expr.X)
	case *syntax.UnaryArithm:
		return w.unary(expr)
	case *syntax.BinaryArithm:
		return w.binaryArithmetic(expr)
	default:
		return w.refuseAt(expr, quote(w.sourceOf(expr))+" can't be checked as arithmetic", arithmeticFix)
	}
}

func (w *walker) unary(expr *syntax.UnaryArithm) *refusal {
	if expr.Op == syntax.Inc || expr.Op == syntax.Dec {
		if refused := w.assignedOperand(expr.X); refused != nil {
			return refused
		}
	}
	return w.arithmetic(expr.X)
}

func (w *walker) binaryArithmetic(expr *syntax.BinaryArithm) *refusal {
	if !assigns(expr.Op) {
		return firstRefusal(w.arithmetic(expr.X), w.arithmetic(expr.Y))
	}
	if refused := firstRefusal(w.assignedOperand(expr.X), w.arithmetic(expr.Y)); refused != nil {
		return refused
	}
	name, plain := operandName(expr.X)
	if expr.Op != syntax.Assgn || !plain {
		return w.arithmetic(expr.X)
	}
	w.scope.define(variableKey(name), arithmeticCannotFail(expr.Y) && w.writable(name))
	return nil
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

// assignedOperand checks the left side of an assignment: a plain name, or an element of an array.
func (w *walker) assignedOperand(expr syntax.ArithmExpr) *refusal {
	if name, plain := operandName(expr); plain {
		return w.assignable(expr, name)
	}
	if node, ok := expr.(*syntax.Word); ok && len(node.Parts) == 1 {
		if element, ok := node.Parts[0].(*syntax.ParamExp); ok && element.Param != nil && !element.Dollar.IsValid() {
			return w.assignable(expr, element.Param.Value)
		}
	}
	return w.refuseAt(expr, quote(w.sourceOf(expr))+" can't be checked as the target of an assignment", "assign a plain variable")
}

// operand checks one operand: a number, a name, or several parts that make a number, as in 10#$x.
func (w *walker) operand(node *syntax.Word) *refusal {
	if name := node.Lit(); isName(name) {
		return w.numericName(node, name)
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
		return w.numericParam(part)
	case *syntax.ArithmExp:
		return w.arithmExp(part)
	}
	return w.refuseAt(part, "in arithmetic, the text of "+quote(w.sourceOf(part))+" would be evaluated again", arithmeticFix)
}

func (w *walker) numericName(node syntax.Node, name string) *refusal {
	if w.isNumeric(name) {
		return nil
	}
	return w.refuseAt(node, "in arithmetic, the text of the variable "+quote(name)+" would be evaluated again, and it is not known to be a number", arithmeticFix)
}

func (w *walker) numericParam(p *syntax.ParamExp) *refusal {
	if p.Param == nil {
		return w.refuseAt(p, quote(w.sourceOf(p))+" can't be checked as arithmetic", arithmeticFix)
	}
	name := p.Param.Value
	switch {
	case p.Length:
		return w.param(p, false)
	case isPlain(p) && numericParameter(name):
		return nil
	case isPlain(p):
		return w.numericName(p, name)
	case p.Index != nil && !p.Excl && p.Exp == nil && p.Repl == nil && p.Slice == nil && isName(name):
		return firstRefusal(w.numericName(p, name), w.arithmeticSubscript(p, p.Index))
	}
	return w.refuseAt(p, "in arithmetic, the text of "+quote(w.sourceOf(p))+" would be evaluated again", arithmeticFix)
}

func (w *walker) arithmeticSubscript(node syntax.Node, index syntax.ArithmExpr) *refusal {
	if word, ok := index.(*syntax.Word); ok && (word.Lit() == "@" || word.Lit() == "*") {
		return w.refuseAt(node, "a whole array can't be checked as arithmetic", arithmeticFix)
	}
	return w.arithmetic(index)
}

// subscript checks the index of an array: arithmetic, or the key of an associative array.
func (w *walker) subscript(node syntax.Node, name string, index syntax.ArithmExpr) *refusal {
	key, ok := index.(*syntax.Word)
	if ok && (key.Lit() == "@" || key.Lit() == "*") {
		return nil
	}
	fact := w.facts[name]
	if !ok || fact == nil || !fact.keyed || fact.unkeyed || !w.scope.has(keyedKey(name)) {
		return w.arithmetic(index)
	}
	for _, part := range key.Parts {
		if !plainKey(part) {
			return w.refuseAt(node, "the key "+quote(w.sourceOf(index))+" can't be checked", "use a plain word or \"$name\" as the key")
		}
	}
	return nil
}

// plainKey accepts keys that bash doesn't expand twice.
func plainKey(part syntax.WordPart) bool {
	switch part := part.(type) {
	case *syntax.Lit:
		return !strings.ContainsAny(part.Value, "[]\\`$'\"")
	case *syntax.ParamExp:
		return isPlain(part)
	case *syntax.DblQuoted:
		for _, inner := range part.Parts {
			if !plainKey(inner) {
				return false
			}
		}
		return !part.Dollar
	default:
		return false
	}
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
			return w.testedName(expr)
		}
		return w.test(expr.X)
	case *syntax.BinaryTest:
		return w.binaryTest(expr)
	default:
		return w.refuseAt(expr, quote(w.sourceOf(expr))+" can't be checked", "use a simpler test")
	}
}

func (w *walker) testedName(expr *syntax.UnaryTest) *refusal {
	node, ok := expr.X.(*syntax.Word)
	if ok {
		if name := w.read(node); name.known && isName(name.text) {
			return nil
		}
	}
	return w.refuseAt(expr, "-v would evaluate the subscript in "+quote(w.sourceOf(expr.X)), "test a plain name")
}

func (w *walker) binaryTest(expr *syntax.BinaryTest) *refusal {
	switch expr.Op {
	case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
		return firstRefusal(w.comparedNumber(expr.X), w.comparedNumber(expr.Y))
	case syntax.TsReMatch:
		if refused := w.pattern(expr.Y); refused != nil {
			return refused
		}
	}
	return firstRefusal(w.test(expr.X), w.test(expr.Y))
}

// comparedNumber checks one side of -eq and its like.
func (w *walker) comparedNumber(side syntax.TestExpr) *refusal {
	node, ok := side.(*syntax.Word)
	if !ok {
		return w.refuseAt(side, quote(w.sourceOf(side))+" can't be checked as a number", arithmeticFix)
	}
	if isNumericWord(node) {
		return w.word(node)
	}
	for _, part := range node.Parts {
		if quoted, ok := part.(*syntax.DblQuoted); ok && len(quoted.Parts) == 1 && !quoted.Dollar {
			part = quoted.Parts[0]
		}
		if lit, ok := part.(*syntax.Lit); ok && isName(lit.Value) && len(node.Parts) == 1 {
			return w.numericName(node, lit.Value)
		}
		if refused := w.operandPart(part); refused != nil {
			refused.fix = "use [ … ] instead of [[ … ]] to compare what may be no number"
			return refused
		}
	}
	return nil
}

// pattern refuses regular expressions for which bash and the parser may disagree on the end.
func (w *walker) pattern(side syntax.TestExpr) *refusal {
	text := w.sourceOf(side)
	if strings.ContainsAny(text, "()") && strings.ContainsAny(text, " \t\n'\"`\\;&<>#") {
		return w.refuseAt(side, "the regular expression "+quote(text)+" contains brackets with quotes or white space and can't be checked", "put it into a variable and match against $name")
	}
	return nil
}
