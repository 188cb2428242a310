package guards

import (
	"fmt"

	"mvdan.cc/sh/v3/syntax"
)

// walker checks one script. Its methods check one kind of node each; a kind without a method is refused.
type walker struct {
	*checker
	source string
	lang   syntax.LangVariant
	facts  variables
	// functions are the functions of the script, by name.
	functions map[string]*function
	scope     *scope
	// script is the scope of the whole script. What is defined there stays defined.
	script *scope
	// inner are the parsed texts of eval and trap; collecting is their depth while facts are collected.
	inner      map[*syntax.CallExpr]*syntax.File
	collecting int
	innerBytes int
	// needs counts the needs that were added to functions, from 1 on.
	needs int
}

func newWalker(c *checker, source string, lang syntax.LangVariant) *walker {
	script := &scope{}
	return &walker{
		checker: c, source: source, lang: lang, functions: map[string]*function{},
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

// refuseAt refuses a node.
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

// inChildScope checks commands that may not run, run in another process, or run repeatedly. What they define doesn't hold
// afterwards.
func (w *walker) inChildScope(f func() *refusal) *refusal {
	outer := w.scope
	w.scope = &scope{parent: outer, body: outer.body}
	defer func() { w.scope = outer }()
	return f()
}

// statements checks a list. If an expansion fails, bash aborts the line and goes on with the next one. So what a line
// defines holds on later lines only if nothing before it in the line can fail.
func (w *walker) statements(list []*syntax.Stmt) *refusal {
	outer := w.scope
	defer func() { w.scope = outer }()
	var last uint
	for _, stmt := range list {
		if stmt.Pos().Line() > last || w.scope == outer {
			w.scope = &scope{parent: outer, body: outer.body, lineCannotFail: true}
		}
		if refused := w.statement(stmt); refused != nil {
			return refused
		}
		last = stmt.End().Line()
		w.scope.lineCannotFail = w.scope.lineCannotFail && w.cannotFail(stmt)
	}
	return nil
}

func (w *walker) statement(stmt *syntax.Stmt) *refusal {
	if stmt.Coprocess || stmt.Disown {
		return w.refuseAt(stmt, "the script starts a process in a way that bash doesn't have", "use & or |")
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
		return w.inChildScope(func() *refusal { return w.command(stmt.Cmd) })
	}
	return w.command(stmt.Cmd)
}

// leadingRedirect refuses reserved words after a redirection, which bash takes for names of programs.
func (w *walker) leadingRedirect(stmt *syntax.Stmt) *refusal {
	if len(stmt.Redirs) == 0 || !stmt.Cmd.Pos().After(stmt.Redirs[0].Pos()) {
		return nil
	}
	switch stmt.Cmd.(type) {
	case *syntax.CallExpr, *syntax.DeclClause:
		return nil
	}
	return w.refuseAt(stmt, "a redirection stands before a compound command, so bash takes the first word of the command for a program", "put the redirection after the command")
}

func (w *walker) command(cmd syntax.Command) *refusal {
	switch cmd := cmd.(type) {
	case *syntax.CallExpr:
		return w.call(cmd)
	case *syntax.BinaryCmd:
		return w.binary(cmd)
	case *syntax.Block:
		return w.inChildScope(func() *refusal { return w.statements(cmd.Stmts) })
	case *syntax.Subshell:
		return w.inChildScope(func() *refusal { return w.statements(cmd.Stmts) })
	case *syntax.IfClause:
		return w.ifClause(cmd)
	case *syntax.WhileClause:
		return w.inChildScope(func() *refusal { return firstRefusal(w.lists(cmd.Cond, cmd.Do)) })
	case *syntax.ForClause:
		return w.inChildScope(func() *refusal { return w.forClause(cmd) })
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
		return w.refuseAt(cmd, fmt.Sprintf("%s can't be checked", quote(w.sourceOf(cmd))), "use plain commands")
	}
}

// lists checks lists that run one after the other, each with the definitions of those before.
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
	} else if refused := w.inChildScope(func() *refusal { return w.statement(cmd.X) }); refused != nil {
		return refused
	}
	if cmd.Op != syntax.AndStmt && cmd.Op != syntax.OrStmt {
		if refused := w.piped(cmd.Y); refused != nil {
			return refused
		}
	}
	return w.inChildScope(func() *refusal { return w.statement(cmd.Y) })
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
		if refused := w.inChildScope(func() *refusal { return w.lists(branch.Cond, branch.Then) }); refused != nil {
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
		return w.refuseAt(cmd, "this kind of loop can't be checked", "use for, while or until")
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
		if refused := w.inChildScope(func() *refusal { return w.statements(item.Stmts) }); refused != nil {
			return refused
		}
	}
	return nil
}

func (w *walker) timeClause(cmd *syntax.TimeClause) *refusal {
	if cmd.Stmt == nil {
		return nil
	}
	return w.inChildScope(func() *refusal { return w.statement(cmd.Stmt) })
}

func (w *walker) coproc(cmd *syntax.CoprocClause) *refusal {
	if _, simple := cmd.Stmt.Cmd.(*syntax.CallExpr); !simple && !isGroup(cmd.Stmt) || cmd.Stmt.Negated {
		return w.refuseAt(cmd, "what "+quote(w.sourceOf(cmd))+" runs can't be checked", "write coproc { …; }")
	}
	if cmd.Name != nil {
		// Bash takes the name for a command unless a group follows.
		if !isGroup(cmd.Stmt) {
			return w.refuseAt(cmd, "what "+quote(w.sourceOf(cmd))+" runs can't be checked", "write coproc { …; }")
		}
		if refused := w.assignable(cmd.Name, w.read(cmd.Name).text); refused != nil {
			return refused
		}
	}
	return w.inChildScope(func() *refusal { return w.statement(cmd.Stmt) })
}
