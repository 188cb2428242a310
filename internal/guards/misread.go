package guards

import (
	"cmp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// misreader looks for what bash reads otherwise than the parser, whose tree then lacks commands that bash runs.
type misreader struct {
	text string
	// ends has, for each node on the way to the current one, the line on which the substitution ends that it is in; 0 for none.
	ends  []uint
	found *unreadable
	hdocs []hereDocument
	// comment is the line of the last comment that makes no difference.
	comment uint
}

// hereDocument is one whose body has to end before a line, if that isn't 0.
type hereDocument struct {
	*syntax.Redirect
	before uint
}

// misread says what of a script bash reads otherwise; nil where nothing is known.
func misread(text string, file *syntax.File) *unreadable {
	m := &misreader{text: text, ends: []uint{0}}
	syntax.Walk(file, m.visit)
	if m.found == nil {
		m.checkHereDocuments()
	}
	return m.found
}

func (m *misreader) note(at syntax.Pos, why string) {
	if m.found == nil {
		m.found = &unreadable{line: at.Line(), column: at.Col(), why: "shells may read this otherwise than it looks: " + why}
	}
}

func (m *misreader) visit(node syntax.Node) bool {
	if node == nil {
		m.ends = m.ends[:len(m.ends)-1]
		return false
	}
	end := m.ends[len(m.ends)-1]
	switch node := node.(type) {
	case *syntax.CmdSubst, *syntax.ProcSubst:
		end = node.End().Line()
	case *syntax.Comment:
		m.checkComment(node)
	case *syntax.Lit:
		from, to := node.Pos().Offset(), node.End().Offset()
		if strings.Contains(m.text[from:min(int(to)+len("\\\n"), len(m.text))], "$\\\n") {
			m.note(node.Pos(), "break no line behind a \"$\"")
		}
	case *syntax.ParamExp:
		m.checkParameter(node)
	case *syntax.CoprocClause:
		m.checkCoprocess(node)
	case *syntax.Redirect:
		if node.Op == syntax.Hdoc || node.Op == syntax.DashHdoc {
			m.hdocs = append(m.hdocs, hereDocument{node, end})
		}
	}
	m.ends = append(m.ends, end)
	return true
}

// checkComment looks for a comment that ends in a backslash, behind which the parser goes on with the line. That makes no difference where
// the comment is all of a line that doesn't continue another one.
func (m *misreader) checkComment(node *syntax.Comment) {
	if !strings.HasSuffix(node.Text, "\\\n") {
		return
	}
	at := node.Pos()
	before := strings.TrimRight(m.text[:at.Offset()], " \t")
	isAlone := before == "" || strings.HasSuffix(before, "\n")
	if !isAlone || strings.HasSuffix(before, "\\\n") && at.Line() != m.comment+1 {
		m.note(at, "end the comment without a backslash")
		return
	}
	m.comment = at.Line()
}

// checkCoprocess looks for a simple command of a coprocess whose first word the parser takes for a name of the coprocess, or for no
// assignment.
func (m *misreader) checkCoprocess(node *syntax.CoprocClause) {
	first := node.Stmt
	for list, is := first.Cmd.(*syntax.BinaryCmd); is; list, is = first.Cmd.(*syntax.BinaryCmd) {
		first = list.X
	}
	call, isSimple := first.Cmd.(*syntax.CallExpr)
	if first.Cmd != nil && !isSimple {
		return
	}
	isPlain := node.Name == nil && call != nil && len(call.Args) > 0 && len(call.Assigns) == 0
	if isPlain {
		word := call.Args[0]
		isPlain = m.text[word.Pos().Offset():word.End().Offset()] == word.Lit() && !strings.Contains(word.Lit(), "=")
	}
	if !isPlain {
		m.note(node.Pos(), "put the command of a coprocess into braces")
	}
}

// checkParameter looks for process substitutions within an expansion of a parameter, which the parser takes for text.
func (m *misreader) checkParameter(node *syntax.ParamExp) {
	var words []*syntax.Word
	if node.Exp != nil {
		words = append(words, node.Exp.Word)
	}
	if node.Repl != nil {
		words = append(words, node.Repl.Orig, node.Repl.With)
	}
	for _, word := range words {
		if word == nil {
			continue
		}
		for _, part := range word.Parts {
			if lit, ok := part.(*syntax.Lit); ok && (strings.Contains(lit.Value, "<(") || strings.Contains(lit.Value, ">(")) {
				m.note(lit.Pos(), "use no process substitution within ${…}")
			}
		}
	}
}

// checkHereDocuments compares where the bodies of here-documents are with where bash reads them: from the next line on, behind those
// that began before them, up to the first line that ends them. The parser has them wait for the end of what they stand in.
func (m *misreader) checkHereDocuments() {
	if len(m.hdocs) == 0 {
		return
	}
	slices.SortFunc(m.hdocs, func(a, b hereDocument) int { return cmp.Compare(a.OpPos.Offset(), b.OpPos.Offset()) })
	lines := strings.Split(m.text, "\n")
	next := 0 // the first line, from 0, behind the bodies so far
	for _, doc := range m.hdocs {
		stop, written := writtenOut(doc.Word)
		from := int(doc.OpPos.Line())
		for from < len(lines) && strings.HasSuffix(lines[from-1], "\\") {
			from++
		}
		from = max(from, next)
		to := from
		for to < len(lines) && !doc.ends(lines[to], stop) {
			to++
		}
		next = to + 1
		if !written || !doc.spans(from, to) || doc.before > 0 && int(doc.before) <= next {
			m.note(doc.OpPos, "begin a here-document on the line behind its \"<<\", end it within its $(…), and use no other in it")
			return
		}
	}
}

// ends says whether a line ends a here-document.
func (d *hereDocument) ends(line, stop string) bool {
	if d.Op == syntax.DashHdoc {
		line = strings.TrimLeft(line, "\t")
	}
	return line == stop
}

// spans says whether the parser has the body on the lines from one up to another, both from 0.
func (d *hereDocument) spans(from, to int) bool {
	if d.Hdoc == nil {
		return from == to
	}
	return int(d.Hdoc.Pos().Line()) == from+1 && int(d.Hdoc.End().Line()) == to+1
}
