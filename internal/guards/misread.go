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
	// around is what each node on the way to the current one is in.
	around []surroundings
	found  *unreadable
	hdocs  []hereDocument
	// comment is the line of the last comment that makes no difference.
	comment uint
}

// surroundings are the line on which the substitution ends that a node is in, 0 for none, and whether the node is in double quotes or in a
// here-document, closer than that.
type surroundings struct {
	end      uint
	isQuoted bool
}

// hereDocument is one whose body has to end before a line, if that isn't 0.
type hereDocument struct {
	*syntax.Redirect
	before uint
}

// misread says what of a script bash reads otherwise; nil where nothing is known.
func misread(text string, file *syntax.File) *unreadable {
	m := &misreader{text: text, around: []surroundings{{}}}
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
		m.around = m.around[:len(m.around)-1]
		return false
	}
	around := m.around[len(m.around)-1]
	switch node := node.(type) {
	case *syntax.CmdSubst, *syntax.ProcSubst:
		around = surroundings{end: node.End().Line()}
	case *syntax.DblQuoted:
		around.isQuoted = true
	case *syntax.Comment:
		m.checkComment(node)
	case *syntax.Lit:
		from, to := node.Pos().Offset(), node.End().Offset()
		if strings.Contains(m.text[from:min(int(to)+len("\\\n"), len(m.text))], "$\\\n") {
			m.note(node.Pos(), "break no line behind a \"$\"")
		}
	case *syntax.ParamExp:
		m.checkParameter(node, around.isQuoted)
	case *syntax.CoprocClause:
		m.checkCoprocess(node)
	case *syntax.TimeClause:
		if call, _ := firstCommand(node.Stmt).(*syntax.CallExpr); call != nil && len(call.Args) > 0 && call.Args[0].Lit() == "--" {
			m.note(node.Pos(), "leave out the \"--\" behind time")
		}
	case *syntax.Redirect:
		if node.Op == syntax.Hdoc || node.Op == syntax.DashHdoc {
			m.hdocs = append(m.hdocs, hereDocument{node, around.end})
			around.isQuoted = true
		}
	}
	m.around = append(m.around, around)
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

// firstCommand is where a pipe or a list begins; nil for a statement without a command.
func firstCommand(first *syntax.Stmt) syntax.Command {
	if first == nil {
		return nil
	}
	for list, is := first.Cmd.(*syntax.BinaryCmd); is; list, is = first.Cmd.(*syntax.BinaryCmd) {
		first = list.X
	}
	return first.Cmd
}

// checkCoprocess looks for a simple command of a coprocess whose first word the parser takes for a name of the coprocess, or for no
// assignment.
func (m *misreader) checkCoprocess(node *syntax.CoprocClause) {
	first := firstCommand(node.Stmt)
	call, _ := first.(*syntax.CallExpr)
	switch first.(type) {
	case nil, *syntax.CallExpr:
	case *syntax.DeclClause, *syntax.LetClause, *syntax.TimeClause, *syntax.FuncDecl, *syntax.CoprocClause:
		if node.Name == nil {
			return
		}
	default:
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

// checkParameter looks for what the parser takes for text within an expansion of a parameter: process substitutions, and what is in single
// quotes, which are no quotes where the expansion itself is quoted.
func (m *misreader) checkParameter(node *syntax.ParamExp, isQuoted bool) {
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
			lit, isLit := part.(*syntax.Lit)
			if isLit && (strings.Contains(lit.Value, "<(") || strings.Contains(lit.Value, ">(")) {
				m.note(lit.Pos(), "use no process substitution within ${…}")
			}
			single, isSingle := part.(*syntax.SglQuoted)
			if isSingle && isQuoted && strings.ContainsAny(single.Value, "$`}\"\\") {
				m.note(single.Pos(), "use no single quotes within \"${…}\"")
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
		isQuoted := m.text[doc.Word.Pos().Offset():doc.Word.End().Offset()] != stop
		to := from
		for to < len(lines) {
			line, last := lines[to], to
			// Without quotes, a line that is continued ends the document together with the next.
			for !isQuoted && continues(line) && last+1 < len(lines) {
				last++
				line = line[:len(line)-1] + lines[last]
			}
			if doc.ends(line, stop) {
				to = last
				break
			}
			to = last + 1
		}
		next = to + 1
		if !written || !doc.spans(from, to) || doc.before > 0 && int(doc.before) <= next {
			m.note(doc.OpPos, "begin a here-document on the line behind its \"<<\", end it within its $(…), and use no other in it")
			return
		}
	}
}

// continues says whether a line ends in a backslash that stands for itself.
func continues(line string) bool { return (len(line)-len(strings.TrimRight(line, "\\")))%2 == 1 }

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
