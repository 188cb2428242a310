package guards

import (
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// walker judges one script. Every kind of node has its own case; one that has none is refused.
type walker struct {
	*judge
	source string
	lang   syntax.LangVariant
	facts  variables
	// functions are those that the script defines, by name.
	functions map[string]*function
	scope     *scope
	// script is the scope of the whole script: what it holds does so to the end.
	script *scope
	// inner are the parsed texts of eval and trap; collecting is how deep they nest while facts are collected.
	inner      map[*syntax.CallExpr]*syntax.File
	collecting int
	innerBytes int
	// needs is 1 and what was added to the needs of functions.
	needs int
}

// function is one that the script defines.
type function struct {
	// needs are functions that its body calls and that must be defined when it is called.
	needs map[string]bool
	// definedAt is the walker's count of needs when everything that it needs was found to be defined.
	definedAt int
}

func newWalker(j *judge, source string, lang syntax.LangVariant) *walker {
	script := &scope{}
	return &walker{
		judge: j, source: source, lang: lang, functions: map[string]*function{},
		needs: 1, scope: script, script: script, inner: map[*syntax.CallExpr]*syntax.File{},
	}
}

func (w *walker) file(file *syntax.File) *refusal {
	facts := variables{}
	facts.collect(w, file)
	w.facts = facts
	if facts["HOME"] != nil || facts["PWD"] != nil {
		w.homeSet = true
	}
	return w.statements(file.Stmts)
}

// refuseAt blames a node.
func (w *walker) refuseAt(node syntax.Node, what, fix string) *refusal {
	pos := node.Pos()
	return &refusal{what: what, fix: fix, line: pos.Line(), col: pos.Col()}
}

func (w *walker) sourceOf(node syntax.Node) string {
	from, to := node.Pos().Offset(), node.End().Offset()
	if from >= to || to > uint(len(w.source)) {
		return ""
	}
	return w.source[from:to]
}

// apart judges something that may not run, runs in its own process, or may run again: what it defines does not
// hold afterwards.
func (w *walker) apart(f func() *refusal) *refusal {
	outer := w.scope
	w.scope = &scope{up: outer, body: outer.body}
	defer func() { w.scope = outer }()
	return f()
}

// statements judges a list. Bash gives up the rest of a line when an expansion fails in it, and goes on
// with the next line: so what a line defines holds on later lines only when nothing before it can fail.
func (w *walker) statements(list []*syntax.Stmt) *refusal {
	outer := w.scope
	defer func() { w.scope = outer }()
	var last uint
	for _, stmt := range list {
		if stmt.Pos().Line() > last || w.scope == outer {
			w.scope = &scope{up: outer, body: outer.body, sure: true}
		}
		if refused := w.statement(stmt); refused != nil {
			return refused
		}
		last = stmt.End().Line()
		w.scope.sure = w.scope.sure && w.cannotFail(stmt)
	}
	return nil
}

func (w *walker) statement(stmt *syntax.Stmt) *refusal {
	if stmt.Coprocess || stmt.Disown {
		return w.refuseAt(stmt, "it uses a way to start a process that bash does not have", "use & or |")
	}
	for _, redirect := range stmt.Redirs {
		if refused := w.redirect(redirect); refused != nil {
			return refused
		}
	}
	if stmt.Cmd == nil {
		return nil
	}
	if refused := w.leadingRedirect(stmt); refused != nil {
		return refused
	}
	if stmt.Background {
		return w.apart(func() *refusal { return w.command(stmt.Cmd) })
	}
	return w.command(stmt.Cmd)
}

// leadingRedirect refuses reserved words after a redirection: bash takes them for names of programs.
func (w *walker) leadingRedirect(stmt *syntax.Stmt) *refusal {
	if len(stmt.Redirs) == 0 || !stmt.Cmd.Pos().After(stmt.Redirs[0].Pos()) {
		return nil
	}
	switch stmt.Cmd.(type) {
	case *syntax.CallExpr, *syntax.DeclClause:
		return nil
	}
	return w.refuseAt(stmt, "a redirection stands before a compound command, where bash takes its first word for a program", "put the redirection after the command")
}

func (w *walker) command(cmd syntax.Command) *refusal {
	switch cmd := cmd.(type) {
	case *syntax.CallExpr:
		return w.call(cmd)
	case *syntax.BinaryCmd:
		return w.binary(cmd)
	case *syntax.Block:
		return w.apart(func() *refusal { return w.statements(cmd.Stmts) })
	case *syntax.Subshell:
		return w.apart(func() *refusal { return w.statements(cmd.Stmts) })
	case *syntax.IfClause:
		return w.ifClause(cmd)
	case *syntax.WhileClause:
		return w.apart(func() *refusal { return firstRefusal(w.lists(cmd.Cond, cmd.Do)) })
	case *syntax.ForClause:
		return w.apart(func() *refusal { return w.forClause(cmd) })
	case *syntax.CaseClause:
		return w.caseClause(cmd)
	case *syntax.FuncDecl:
		return w.funcDecl(cmd)
	case *syntax.DeclClause:
		return w.declClause(cmd)
	case *syntax.ArithmCmd:
		return w.arithmCmd(cmd)
	case *syntax.TestClause:
		return w.test(cmd.X)
	case *syntax.TimeClause:
		return w.timeClause(cmd)
	case *syntax.CoprocClause:
		return w.coproc(cmd)
	case *syntax.LetClause:
		return w.refuseAt(cmd, "let evaluates its arguments as arithmetic", "use $(( )) with numbers")
	default:
		return w.refuseAt(cmd, fmt.Sprintf("%s can't be judged", quote(w.sourceOf(cmd))), "use plain commands")
	}
}

func firstRefusal(refusals ...*refusal) *refusal {
	for _, refused := range refusals {
		if refused != nil {
			return refused
		}
	}
	return nil
}

// lists judges lists that run one after the other, where each sees what the one before defined.
func (w *walker) lists(lists ...[]*syntax.Stmt) *refusal {
	for _, list := range lists {
		if refused := w.statements(list); refused != nil {
			return refused
		}
	}
	return nil
}

func (w *walker) binary(cmd *syntax.BinaryCmd) *refusal {
	if cmd.Op == syntax.AndStmt || cmd.Op == syntax.OrStmt {
		if refused := w.statement(cmd.X); refused != nil {
			return refused
		}
	} else if refused := w.apart(func() *refusal { return w.statement(cmd.X) }); refused != nil {
		return refused
	}
	if cmd.Op != syntax.AndStmt && cmd.Op != syntax.OrStmt {
		if refused := w.piped(cmd.Y); refused != nil {
			return refused
		}
	}
	return w.apart(func() *refusal { return w.statement(cmd.Y) })
}

// piped refuses reserved words that bash takes for names of programs within a pipeline.
func (w *walker) piped(stmt *syntax.Stmt) *refusal {
	_, timed := stmt.Cmd.(*syntax.TimeClause)
	_, coproc := stmt.Cmd.(*syntax.CoprocClause)
	if timed || coproc || stmt.Negated {
		return w.refuseAt(stmt, "within a pipeline bash takes the first word of "+quote(w.sourceOf(stmt))+" for a program", "put time and ! before the whole pipeline")
	}
	return nil
}

func (w *walker) ifClause(cmd *syntax.IfClause) *refusal {
	for ; cmd != nil; cmd = cmd.Else {
		branch := cmd
		if refused := w.apart(func() *refusal { return w.lists(branch.Cond, branch.Then) }); refused != nil {
			return refused
		}
	}
	return nil
}

func (w *walker) forClause(cmd *syntax.ForClause) *refusal {
	switch loop := cmd.Loop.(type) {
	case *syntax.WordIter:
		if refused := w.assignable(loop.Name, loop.Name.Value); refused != nil {
			return refused
		}
		if refused := w.words(loop.Items); refused != nil {
			return refused
		}
		w.scope.define(variableKey(loop.Name.Value), false)
	case *syntax.CStyleLoop:
		for _, part := range []syntax.ArithmExpr{loop.Init, loop.Cond, loop.Post} {
			if refused := w.arithmetic(part); refused != nil {
				return refused
			}
		}
	default:
		return w.refuseAt(cmd, "this kind of loop can't be judged", "use for, while or until")
	}
	return w.statements(cmd.Do)
}

func (w *walker) caseClause(cmd *syntax.CaseClause) *refusal {
	if refused := w.word(cmd.Word); refused != nil {
		return refused
	}
	for _, item := range cmd.Items {
		if refused := w.words(item.Patterns); refused != nil {
			return refused
		}
		if refused := w.apart(func() *refusal { return w.statements(item.Stmts) }); refused != nil {
			return refused
		}
	}
	return nil
}

func (w *walker) timeClause(cmd *syntax.TimeClause) *refusal {
	if cmd.Stmt == nil {
		return nil
	}
	return w.apart(func() *refusal { return w.statement(cmd.Stmt) })
}

func (w *walker) coproc(cmd *syntax.CoprocClause) *refusal {
	if _, simple := cmd.Stmt.Cmd.(*syntax.CallExpr); !simple && !isGroup(cmd.Stmt) || cmd.Stmt.Negated {
		return w.refuseAt(cmd, "what "+quote(w.sourceOf(cmd))+" runs can't be judged", "write coproc { …; }")
	}
	if cmd.Name != nil {
		// Before anything but a group bash takes the name for a command.
		if !isGroup(cmd.Stmt) {
			return w.refuseAt(cmd, "what "+quote(w.sourceOf(cmd))+" runs can't be judged", "write coproc { …; }")
		}
		if refused := w.assignable(cmd.Name, w.read(cmd.Name).text); refused != nil {
			return refused
		}
	}
	return w.apart(func() *refusal { return w.statement(cmd.Stmt) })
}

func (w *walker) redirect(redirect *syntax.Redirect) *refusal {
	if refused := w.redirected(redirect); refused != nil {
		return refused
	}
	switch redirect.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		return w.hereDocument(redirect)
	case syntax.DplIn, syntax.DplOut:
		return w.duplicated(redirect)
	case syntax.RdrOut, syntax.AppOut, syntax.RdrIn, syntax.RdrInOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll, syntax.WordHdoc:
	default:
		return w.refuseAt(redirect, "the redirection "+quote(w.sourceOf(redirect))+" is not one of bash", "use <, > or >>")
	}
	return w.word(redirect.Word)
}

// duplicated judges the target of <& and >&. Bash expands it, takes what is no number for the name of a file, and
// expands that again. And it ends >&- after the hyphen: what follows is a command.
func (w *walker) duplicated(redirect *syntax.Redirect) *refusal {
	target := w.read(redirect.Word)
	switch {
	case target.known && target.text == "-", target.numbers, target.known && safeText(redirect.Word) != "":
		return w.word(redirect.Word)
	}
	return w.refuseAt(redirect, "bash expands the target of "+quote(w.sourceOf(redirect))+" twice, or takes a part of it for a command", "write a number, or use > for a file")
}

// redirected judges what stands before a redirection: a number, or a variable that gets one.
func (w *walker) redirected(redirect *syntax.Redirect) *refusal {
	if redirect.N == nil {
		return nil
	}
	name, braced := strings.CutPrefix(redirect.N.Value, "{")
	name, closed := strings.CutSuffix(name, "}")
	if braced && closed {
		return w.assignable(redirect, name)
	}
	if strings.Trim(redirect.N.Value, "0123456789") != "" {
		return w.refuseAt(redirect, "the file descriptor "+quote(redirect.N.Value)+" can't be judged", "use a number")
	}
	return nil
}

// hereDocument judges what a here-document expands. Its delimiter must be plain, so that every version of
// bash sees its end in the same line as the parser.
func (w *walker) hereDocument(redirect *syntax.Redirect) *refusal {
	delimiter := w.read(redirect.Word)
	if !delimiter.known || strings.Trim(delimiter.text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" || delimiter.text == "" {
		return w.refuseAt(redirect, "the here-document's delimiter "+quote(delimiter.source)+" is not plain", "use a word like EOF")
	}
	if redirect.Word.Lit() != delimiter.text || redirect.Hdoc == nil {
		return nil
	}
	if strings.Contains(w.sourceOf(redirect.Hdoc), "\\\n") {
		return w.refuseAt(redirect, "a line of the here-document ends in a backslash", "quote the delimiter, as in <<'EOF', or join the lines")
	}
	for _, part := range redirect.Hdoc.Parts {
		if refused := w.part(part, true); refused != nil {
			return refused
		}
	}
	return nil
}
