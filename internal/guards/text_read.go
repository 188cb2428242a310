package guards

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// wordReader works out how much of a word is known.
type wordReader struct {
	*walker
	text    strings.Builder
	frozen  bool // an unknown part has come: text is only the start of the word
	many    bool
	derived bool
	numbers bool
	atHome  bool            // the part before is $HOME or $PWD, which may be empty
	bare    strings.Builder // the unquoted characters, with a NUL for each quoted or unknown part
}

// read works out how much of a word is known before it runs. It checks nothing.
func (w *walker) read(node *syntax.Word) word {
	if text, plain := plainText(node); plain {
		return word{text: text, known: true, source: w.sourceOf(node), line: node.Pos().Line(), column: node.Pos().Col()}
	}
	r := wordReader{walker: w}
	for i, part := range node.Parts {
		r.part(part, i == 0)
	}
	if braces(r.bare.String()) {
		r.cutAtBrace()
	}
	return word{
		text: r.text.String(), known: !r.frozen, many: r.many, derived: r.derived, numbers: r.numbers && len(node.Parts) == 1, source: w.sourceOf(node),
		line: node.Pos().Line(), column: node.Pos().Col(),
	}
}

// plainText returns the text of a word that is one part without anything to resolve.
func plainText(node *syntax.Word) (string, bool) {
	if len(node.Parts) != 1 {
		return "", false
	}
	switch part := node.Parts[0].(type) {
	case *syntax.Lit:
		return part.Value, !strings.ContainsAny(part.Value, "\\~*?[{")
	case *syntax.SglQuoted:
		return part.Value, !part.Dollar
	}
	return "", false
}

func (r *wordReader) part(part syntax.WordPart, first bool) {
	switch part := part.(type) {
	case *syntax.Lit:
		r.literal(part.Value, first)
	case *syntax.SglQuoted:
		r.bare.WriteByte(0)
		if part.Dollar && strings.Contains(part.Value, `\`) {
			r.addUnknown()
			return
		}
		r.addKnown(part.Value)
	case *syntax.DblQuoted:
		r.quoted(part)
	case *syntax.ParamExp:
		r.bare.WriteByte(0)
		r.parameter(part, false)
	case *syntax.ProcSubst:
		r.addKnown("/dev/fd/")
		r.addUnknown()
	case *syntax.ArithmExp:
		r.bare.WriteByte(0)
		r.addUnknown()
	case *syntax.CmdSubst:
		r.bare.WriteByte(0)
		if !r.functions["date"] && isPlainDate(part) {
			r.addUnknown()
			return
		}
		r.addSeveral()
	default:
		r.bare.WriteByte(0)
		r.addSeveral()
	}
}

// isPlainDate reports whether a substitution is a date without white space, like $(date +%F).
func isPlainDate(part *syntax.CmdSubst) bool {
	if len(part.Stmts) != 1 || len(part.Stmts[0].Redirs) > 0 {
		return false
	}
	call, ok := part.Stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(call.Assigns) > 0 || len(call.Args) != 2 || call.Args[0].Lit() != "date" {
		return false
	}
	format := call.Args[1].Lit()
	return strings.HasPrefix(format, "+%") && strings.Trim(format[1:], "%YymdHMSFsj_-") == ""
}

// addKnown adds text, unless an earlier part is unknown.
func (r *wordReader) addKnown(text string) {
	if text != "" {
		r.resolveHome(text[0] == '/')
	}
	if !r.frozen {
		r.text.WriteString(text)
	}
}

// addUnknown adds text that isn't known.
func (r *wordReader) addUnknown() {
	r.resolveHome(false)
	r.frozen = true
}

// addHome adds $HOME or $PWD, which is a path, or empty if the variable isn't set. The word starts with a slash if one
// follows, and is a path or empty if nothing follows.
func (r *wordReader) addHome() {
	r.addKnown("/")
	r.frozen, r.atHome = true, true
}

func (r *wordReader) resolveHome(slash bool) {
	if r.atHome && !slash {
		r.text.Reset()
	}
	r.atHome = false
}

// addSeveral adds an expansion that bash may split into words.
func (r *wordReader) addSeveral() {
	r.frozen, r.many = true, true
	r.text.Reset()
}

// literal adds unquoted text. Backslashes quote, and patterns expand to the names that they match.
func (r *wordReader) literal(value string, first bool) {
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case c == '\\' && i+1 < len(value):
			i++
			r.bare.WriteByte(0)
			r.addKnown(value[i : i+1])
			continue
		case c == '~':
			r.tilde(value, first && i == 0)
		case c == '*', c == '?', c == '[' && value != "[":
			r.frozen, r.many = true, true
		}
		r.bare.WriteByte(c)
		r.addKnown(value[i : i+1])
	}
}

// tilde handles the home directory at the start of a word. HOME is a path unless the call or the script sets it.
func (r *wordReader) tilde(value string, first bool) {
	if first && !r.frozen && (value == "~" || strings.HasPrefix(value, "~/")) && r.pathVariable("HOME") {
		r.addKnown("/")
	}
	r.frozen = true
}

func (r *wordReader) quoted(part *syntax.DblQuoted) {
	r.bare.WriteByte(0)
	if part.Dollar {
		r.addUnknown()
		return
	}
	for _, inner := range part.Parts {
		switch inner := inner.(type) {
		case *syntax.Lit:
			r.addKnown(unescapeQuoted(inner.Value))
		case *syntax.ParamExp:
			r.parameter(inner, true)
		default:
			r.addUnknown()
		}
	}
}

// unescapeQuoted resolves the backslashes of a text in double quotes.
func unescapeQuoted(value string) string {
	if !strings.Contains(value, `\`) {
		return value
	}
	var out strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] == '\\' && i+1 < len(value) && strings.IndexByte("$`\"\\", value[i+1]) >= 0 {
			i++
		}
		out.WriteByte(value[i])
	}
	return out.String()
}

func (r *wordReader) parameter(param *syntax.ParamExp, quoted bool) {
	if param.Param == nil {
		r.addSeveral()
		return
	}
	name := param.Param.Value
	plain := isPlain(param)
	switch {
	case plain && numericParameter(name) && (quoted || name != "!"), param.Length && !param.Excl:
		r.addUnknown()
	case plain && !quoted && (name == "!" || r.isNumeric(name)):
		r.addSeveral()
		r.numbers = true
	case plain && quoted && (name == "HOME" || name == "PWD") && r.pathVariable(name):
		r.addHome()
	case plain && quoted && r.loops[name] != "":
		r.addKnown(r.loops[name])
		r.addUnknown()
	case plain && r.knownValue(name) != "":
		r.derived = true
		r.addKnown(r.knownValue(name))
	case quoted && !isList(param):
		r.addUnknown()
	default:
		r.addSeveral()
	}
}

// isPlain reports whether the expansion is $name or ${name} without anything more.
func isPlain(p *syntax.ParamExp) bool {
	return p.Param != nil && p.Flags == nil && !p.Excl && !p.Length && !p.Width && !p.IsSet && p.NestedParam == nil &&
		p.Index == nil && len(p.Modifiers) == 0 && p.Slice == nil && p.Repl == nil && p.Names == 0 && p.Exp == nil
}

// isList reports whether the expansion is several words even within double quotes.
func isList(p *syntax.ParamExp) bool {
	if p.Param.Value == "@" || p.Names != 0 || p.Excl {
		return true
	}
	if index, ok := p.Index.(*syntax.Word); ok && index.Lit() == "@" {
		return true
	}
	if p.Repl != nil && !(isSimpleText(p.Repl.Orig) && (p.Repl.With == nil || isSimpleText(p.Repl.With))) {
		return true
	}
	// The word in ${x:-word} may be a list.
	return p.Exp != nil && p.Exp.Word != nil && !isSimpleText(p.Exp.Word)
}

func isSimpleText(node *syntax.Word) bool {
	for _, part := range node.Parts {
		if _, ok := part.(*syntax.Lit); !ok {
			return false
		}
	}
	return true
}

// numericParameter reports whether a special parameter is always digits or empty.
func numericParameter(name string) bool {
	return name == "#" || name == "?" || name == "$" || name == "!"
}

// braces reports whether unquoted text holds a brace expansion.
func braces(bare string) bool {
	open := strings.IndexByte(bare, '{')
	if open < 0 {
		return false
	}
	rest := bare[open:]
	return strings.IndexByte(rest, '}') > 0 && (strings.Contains(rest, ",") || strings.Contains(rest, ".."))
}

// cutAtBrace keeps the known text up to the first brace.
func (r *wordReader) cutAtBrace() {
	text, _, _ := strings.Cut(r.text.String(), "{")
	r.text.Reset()
	r.text.WriteString(text)
	r.frozen, r.many = true, true
}
