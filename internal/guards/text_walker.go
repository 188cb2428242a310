package guards

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// scriptKind says how a script reaches bash.
type scriptKind int

const (
	// scriptOfCall is the script as the call has it. It is judged for the positions in messages.
	scriptOfCall scriptKind = iota
	// scriptAsPrinted is the text that bash runs.
	scriptAsPrinted
	// scriptOfLauncher is read as it is written, by a shell that another command starts.
	scriptOfLauncher
	// scriptOfTrap is read as it is written, by the same shell, at any time.
	scriptOfTrap
)

// walker checks a syntax tree. It accepts the part of the language on which bash and the parser agree: each kind of node
// has a rule, and a node without one is refused.
type walker struct {
	*checker
	source string
	lang   syntax.LangVariant
	kind   scriptKind
	// writes is how the whole script sets each variable.
	writes map[string]*write
	// defined are the variables, and functions the functions, that are certainly set at this point.
	defined, functions map[string]bool
	// loops are the starts of the values of the variables of the loops around this point.
	loops map[string]string
	// within counts the commands, and substitutions the substitutions, around this point.
	within, substitutions int
	inFunction            bool
	// literal are the ranges of the text in which a backslash before a newline is an ordinary character.
	literal [][2]uint
}

func newWalker(c *checker, source string, lang syntax.LangVariant, kind scriptKind) *walker {
	return &walker{
		checker: c, source: source, lang: lang, kind: kind,
		writes: map[string]*write{}, defined: map[string]bool{}, functions: map[string]bool{}, loops: map[string]string{},
	}
}

func (w *walker) file(file *syntax.File) *refusal {
	w.collectWrites(file)
	if w.writes["HOME"] != nil {
		w.homeSet = true
	}
	if refused := w.continuedLine(file); refused != nil {
		return refused
	}
	var last uint
	for i, stmt := range file.Stmts {
		if refused := w.statement(stmt); refused != nil {
			return refused
		}
		// If an expansion fails, bash gives up the line: only a statement on a line of its own certainly runs.
		alone := stmt.Pos().Line() > last && (i+1 == len(file.Stmts) || file.Stmts[i+1].Pos().Line() > stmt.End().Line())
		if alone && w.kind == scriptAsPrinted || w.kind == scriptOfCall {
			w.define(stmt)
		}
		last = stmt.End().Line()
	}
	return nil
}

// continuedLine refuses a backslash before a newline where it isn't an ordinary character.
func (w *walker) continuedLine(file *syntax.File) *refusal {
	if !strings.Contains(w.source, "\\\n") {
		return nil
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		switch node := node.(type) {
		case *syntax.SglQuoted:
			if !node.Dollar {
				w.literal = append(w.literal, [2]uint{node.Pos().Offset(), node.End().Offset()})
			}
		case *syntax.Redirect:
			if node.Hdoc != nil && node.Word != nil && node.Word.Lit() == "" {
				w.literal = append(w.literal, [2]uint{node.Hdoc.Pos().Offset(), node.Hdoc.End().Offset()})
			}
		}
		return true
	})
	next := 0
	for at := range continuations(w.source) {
		for next < len(w.literal) && w.literal[next][1] <= uint(at) {
			next++
		}
		if next < len(w.literal) && w.literal[next][0] <= uint(at) {
			continue
		}
		line, column := position(w.source, at)
		return &refusal{what: "a line ends in a backslash, which bash and other parsers read differently", fix: "write the command on one line, or end the line after |, && or ||", line: line, col: column}
	}
	return nil
}

// continuations yields the positions of backslashes before newlines.
func continuations(text string) func(func(int) bool) {
	return func(yield func(int) bool) {
		for at := 0; ; {
			next := strings.Index(text[at:], "\\\n")
			if next < 0 || !yield(at+next) {
				return
			}
			at += next + 2
		}
	}
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

// statements checks lists that run one after the other.
func (w *walker) statements(lists ...[]*syntax.Stmt) *refusal {
	w.within++
	defer func() { w.within-- }()
	for _, list := range lists {
		for _, stmt := range list {
			if refused := w.statement(stmt); refused != nil {
				return refused
			}
		}
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
	_, simple := stmt.Cmd.(*syntax.CallExpr)
	if len(stmt.Redirs) > 0 && stmt.Cmd.Pos().After(stmt.Redirs[0].Pos()) && !simple {
		return w.refuseAt(stmt, "a redirection stands before a compound command, so bash takes the first word of the command for a program", "put the redirection after the command")
	}
	return w.command(stmt, stmt.Cmd)
}

func (w *walker) command(stmt *syntax.Stmt, cmd syntax.Command) *refusal {
	switch cmd := cmd.(type) {
	case *syntax.CallExpr:
		return w.call(cmd)
	case *syntax.BinaryCmd:
		return w.binary(cmd)
	case *syntax.Block:
		return w.statements(cmd.Stmts)
	case *syntax.Subshell:
		return w.statements(cmd.Stmts)
	case *syntax.IfClause:
		for ; cmd != nil; cmd = cmd.Else {
			if refused := w.statements(cmd.Cond, cmd.Then); refused != nil {
				return refused
			}
		}
		return nil
	case *syntax.WhileClause:
		return w.statements(cmd.Cond, cmd.Do)
	case *syntax.ForClause:
		return w.forClause(cmd)
	case *syntax.CaseClause:
		return w.caseClause(cmd)
	case *syntax.FuncDecl:
		return w.funcDecl(stmt, cmd)
	case *syntax.DeclClause:
		return w.declClause(cmd)
	case *syntax.ArithmCmd:
		if cmd.Unsigned {
			return w.refuseAt(cmd, "this form of arithmetic is not one of bash", "use (( ))")
		}
		return w.arithmetic(cmd.X)
	case *syntax.TestClause:
		return w.test(cmd.X)
	case *syntax.TimeClause:
		if cmd.Stmt == nil {
			return nil
		}
		return w.statements([]*syntax.Stmt{cmd.Stmt})
	default:
		return w.refuseAt(cmd, quote(w.sourceOf(cmd))+" is not in the part of bash that can be checked", "use plain commands, if, for, while and case")
	}
}

func (w *walker) binary(cmd *syntax.BinaryCmd) *refusal {
	if cmd.Op == syntax.Pipe || cmd.Op == syntax.PipeAll {
		if _, timed := cmd.Y.Cmd.(*syntax.TimeClause); timed || cmd.Y.Negated {
			return w.refuseAt(cmd.Y, "within a pipeline bash takes the first word of "+quote(w.sourceOf(cmd.Y))+" for a program", "put time and ! before the whole pipeline")
		}
	}
	return w.statements([]*syntax.Stmt{cmd.X, cmd.Y})
}

func (w *walker) forClause(cmd *syntax.ForClause) *refusal {
	if cmd.Select {
		return w.refuseAt(cmd, "select sets variables that can't be checked", "use for")
	}
	switch loop := cmd.Loop.(type) {
	case *syntax.WordIter:
		return w.wordLoop(cmd, loop)
	case *syntax.CStyleLoop:
		name, plain := loopCounter(loop)
		if !plain || w.assignable(cmd, name) != nil || w.writes[name] == nil || w.writes[name].text {
			return w.refuseAt(cmd, "this kind of loop can't be checked", "use for i in $(seq 1 9), or ((i=0; …) with a number and an i that holds numbers only")
		}
		return w.withLoop(name, true, "", func() *refusal {
			return firstRefusal(w.arithmetic(loop.Cond), w.arithmetic(loop.Post), w.statements(cmd.Do))
		})
	default:
		return w.refuseAt(cmd, "this kind of loop can't be checked", "use for name in words")
	}
}

// loopCounter returns the variable that a loop starts from a number.
func loopCounter(loop *syntax.CStyleLoop) (string, bool) {
	start, ok := loop.Init.(*syntax.BinaryArithm)
	if !ok || start.Op != syntax.Assgn {
		return "", false
	}
	number, ok := start.Y.(*syntax.Word)
	if !ok || !isDecimal(number.Lit()) {
		return "", false
	}
	return operandName(start.X)
}

func (w *walker) wordLoop(cmd *syntax.ForClause, loop *syntax.WordIter) *refusal {
	name := loop.Name.Value
	if refused := firstRefusal(w.assignable(loop.Name, name), w.words(loop.Items)); refused != nil {
		return refused
	}
	numeric := len(loop.Items) > 0
	prefix := ""
	for i, item := range loop.Items {
		numeric = numeric && isNumericItem(item)
		text := w.read(item).text
		if i > 0 {
			text = commonPrefix(prefix, text)
		}
		prefix = cutBytes(text, maxValue)
	}
	return w.withLoop(name, numeric, prefix, func() *refusal { return w.statements(cmd.Do) })
}

// withLoop checks the body of a loop. Within it the variable of the loop is set, and starts with prefix if nothing else
// sets it.
func (w *walker) withLoop(name string, numeric bool, prefix string, body func() *refusal) *refusal {
	outer, defined := w.loops[name], w.defined[name]
	defer func() { w.loops[name], w.defined[name] = outer, defined }()
	w.defined[name] = defined || numeric
	if w.writes[name] != nil && w.writes[name].count == 1 {
		w.loops[name] = prefix
	}
	return body()
}

func commonPrefix(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

func (w *walker) caseClause(cmd *syntax.CaseClause) *refusal {
	if refused := w.word(cmd.Word); refused != nil {
		return refused
	}
	for _, item := range cmd.Items {
		if refused := firstRefusal(w.words(item.Patterns), w.statements(item.Stmts)); refused != nil {
			return refused
		}
	}
	return nil
}

// funcDecl accepts a function in its plain form: a statement of its own, with a name of its own, before its first call.
func (w *walker) funcDecl(stmt *syntax.Stmt, cmd *syntax.FuncDecl) *refusal {
	if cmd.Name == nil {
		return w.refuseAt(cmd, "a function without a name can't be checked", "name it")
	}
	name := cmd.Name.Value
	_, builtin := w.policy.shellBuiltins[name]
	_, block := cmd.Body.Cmd.(*syntax.Block)
	switch {
	case w.kind == scriptOfLauncher || w.kind == scriptOfTrap:
		return w.refuseAt(cmd, "a function within the script of another command can't be checked", "write the commands themselves")
	case w.within > 0 || stmt.Negated || stmt.Background || len(stmt.Redirs) > 0 || w.inFunction:
		return w.refuseAt(cmd, "the function "+quote(name)+" is not defined in a statement of its own", "define it at the start of the script, outside of other commands")
	case !block || cmd.Body.Negated || cmd.Body.Background || len(cmd.Body.Redirs) > 0:
		return w.refuseAt(cmd, "the body of the function "+quote(name)+" is not plain", "write "+quote(name)+"() { commands; }")
	case builtin || isReserved(name) || w.policy.binaries.listed[name]:
		return w.refuseAt(cmd, "the function "+quote(name)+" takes the name of a listed program or of a builtin", "choose another name")
	case !isName(strings.ReplaceAll(name, "-", "_")) || w.functions[name]:
		return w.refuseAt(cmd, "the name of the function "+quote(name)+" is not plain, or is defined twice", "use letters, digits, underscores and hyphens, and a name for each")
	}
	w.functions[name] = true
	w.inFunction = true
	defer func() { w.inFunction = false }()
	return w.statement(cmd.Body)
}

func isReserved(name string) bool {
	return hasField("if then else elif fi case esac for select while until do done in function time coproc", name)
}
