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
	for _, part := range node.Parts {
		if refused := w.part(part, false); refused != nil {
			return refused
		}
	}
	return nil
}

// part checks one part of a word. within says that it is in double quotes or in a here-document, where bash and the
// parser disagree on quotes inside of ${...}.
func (w *walker) part(part syntax.WordPart, within bool) *refusal {
	switch part := part.(type) {
	case *syntax.Lit:
		return w.lit(part)
	case *syntax.SglQuoted:
		return nil
	case *syntax.DblQuoted:
		return w.parts(part.Parts)
	case *syntax.ParamExp:
		return w.param(part, within)
	case *syntax.CmdSubst:
		return w.substitution(part)
	case *syntax.ArithmExp:
		return w.arithmExp(part)
	case *syntax.ProcSubst:
		return w.inChildScope(func() *refusal { return w.statements(part.Stmts) })
	case *syntax.ExtGlob:
		return w.refuseAt(part, "the extended pattern "+quote(w.sourceOf(part))+" is off in bash unless a script turns it on, and means something else then", "use a plain pattern, or case")
	default:
		return w.refuseAt(part, quote(w.sourceOf(part))+" can't be checked", "write it in a simpler way")
	}
}

func (w *walker) parts(parts []syntax.WordPart) *refusal {
	for _, part := range parts {
		if refused := w.part(part, true); refused != nil {
			return refused
		}
	}
	return nil
}

// lit refuses expansions in text that the parser takes for literal, in case bash disagrees.
func (w *walker) lit(lit *syntax.Lit) *refusal {
	value := lit.Value
	for i := 0; i < len(value); i++ {
		switch {
		case value[i] == '\\':
			i++
		case value[i] == '`', value[i] == '$' && i+1 < len(value) && strings.IndexByte("({[`'\"", value[i+1]) >= 0:
			return w.refuseAt(lit, "an expansion in "+quote(value)+" can't be checked", "write it in a simpler way")
		}
	}
	return nil
}

func (w *walker) substitution(part *syntax.CmdSubst) *refusal {
	if part.TempFile || part.ReplyVar {
		return w.refuseAt(part, "this form of command substitution can't be checked", "use $(command)")
	}
	if part.Backquotes {
		inside := strings.Trim(w.sourceOf(part), "`")
		if strings.ContainsAny(inside, "\\`#") {
			return w.refuseAt(part, "quoting inside of backquotes can't be checked", "use $(command)")
		}
	}
	return w.inChildScope(func() *refusal { return w.statements(part.Stmts) })
}

func (w *walker) param(p *syntax.ParamExp, within bool) *refusal {
	if p.Flags != nil || p.Width || p.IsSet || p.NestedParam != nil || len(p.Modifiers) > 0 || p.Param == nil {
		return w.refuseAt(p, "the expansion "+quote(w.sourceOf(p))+" can't be checked", "use ${name} and the forms of bash")
	}
	if refused := w.indirect(p); refused != nil {
		return refused
	}
	if p.Index != nil {
		if refused := w.subscript(p, p.Param.Value, p.Index); refused != nil {
			return refused
		}
	}
	if p.Slice != nil {
		if refused := firstRefusal(w.arithmetic(p.Slice.Offset), w.arithmetic(p.Slice.Length)); refused != nil {
			return refused
		}
	}
	if p.Repl != nil {
		if refused := firstRefusal(w.braced(p.Repl.Orig, within), w.braced(p.Repl.With, within)); refused != nil {
			return refused
		}
	}
	if p.Exp != nil {
		return w.expansion(p, within)
	}
	return nil
}

// indirect refuses ${!x}, which evaluates the text of x as a name, perhaps with a subscript. ${!x@} and ${!x[@]} only list
// names.
func (w *walker) indirect(p *syntax.ParamExp) *refusal {
	if !p.Excl || p.Names != 0 {
		return nil
	}
	if index, ok := p.Index.(*syntax.Word); ok && p.Exp == nil && p.Repl == nil && p.Slice == nil && (index.Lit() == "@" || index.Lit() == "*") {
		return nil
	}
	return w.refuseAt(p, "the indirect expansion "+quote(w.sourceOf(p))+" evaluates the text of a variable", "name the variable itself")
}

func (w *walker) expansion(p *syntax.ParamExp, within bool) *refusal {
	switch p.Exp.Op {
	case syntax.AssignUnset, syntax.AssignUnsetOrNull:
		if refused := w.assignable(p, p.Param.Value); refused != nil {
			return refused
		}
	case syntax.OtherParamOps:
		if op := w.read(p.Exp.Word); !op.known || strings.Trim(op.text, "QEAaKkULu") != "" {
			return w.refuseAt(p, "the expansion "+quote(w.sourceOf(p))+" evaluates text", "use ${name}")
		}
	}
	return w.braced(p.Exp.Word, within)
}

// braced checks a word inside of ${...}. Within double quotes bash takes single quotes there for ordinary characters, and
// expands the text between them.
func (w *walker) braced(node *syntax.Word, within bool) *refusal {
	if node == nil {
		return nil
	}
	for _, part := range node.Parts {
		if quoted, ok := part.(*syntax.SglQuoted); ok && (within || quoted.Dollar) && strings.ContainsAny(quoted.Value, "$`\\\"'{}()") {
			return w.refuseAt(part, "quotes inside of ${…} within double quotes can't be checked", "put the text into a variable first")
		}
		if refused := w.part(part, within); refused != nil {
			return refused
		}
	}
	return nil
}

func (w *walker) arithmExp(part *syntax.ArithmExp) *refusal {
	if part.Bracket || part.Unsigned {
		return w.refuseAt(part, "the old form of arithmetic "+quote(w.sourceOf(part))+" can't be checked", "use $(( ))")
	}
	return w.arithmetic(part.X)
}
