package guards

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"

	"toolcall.dev/operator/api/v1alpha1"
)

// maxSeparators bounds the characters of a script that can begin a command or an expansion, each of which takes longer to check than
// the bytes of a word.
const maxSeparators = 8192

// builtins are the names that bash runs itself, in bash 5.2. None needs to be listed, and none is judged by what it does.
const builtins = ". : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown echo enable eval " +
	"exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf pushd pwd read readarray readonly " +
	"return set shift shopt source suspend test times trap true type typeset ulimit umask unalias unset wait"

// declaring are the builtins whose arguments are assignments.
const declaring = "declare export local readonly typeset"

func (p *Policy) checkShellEnabled(*Input) *Denial {
	if p.shellEnabled {
		return nil
	}
	return deny(v1alpha1.ReasonShellDisabled, "shell calls are disabled (shell.enabled is false): use a structured call, with binary and args")
}

func checkCommandGiven(in *Input) *Denial {
	if strings.TrimSpace(in.Action.Command) == "" {
		return deny(v1alpha1.ReasonEmptyCommand, "the command is empty: give a command line, like \"ls -l\"")
	}
	if at := strings.IndexByte(in.Action.Command, 0); at >= 0 {
		return deny(v1alpha1.ReasonInvalidArguments, "byte %d of the command is NUL, at which every shell's argument ends: remove it, or write \\0 in a format of printf", at)
	}
	return nil
}

// checkShellCommands compares the names of commands that a script has written out with the list, and refuses assignments to protected
// variables where nothing else holds them. Under Kernel that is an early answer: what is only known at run time passes, and so does a
// script that this parser can't read but bash may; bash and the kernel answer then. Under Name nothing else holds the list: what isn't
// written out, or can't be read, is refused.
func (p *Policy) checkShellCommands(in *Input) *Denial {
	weak := p.binaries.enforcement == v1alpha1.EnforcementName
	switch {
	case !p.allowlisted:
		return nil
	case !readsBash(in.Shell) && weak:
		return deny(v1alpha1.ReasonShellCommandNotAllowed,
			"the environment's shell is %s, and binaries.enforcement Name reads scripts of bash only: use an environment whose shell is bash -c",
			quote(strings.Join(in.Shell, " ")))
	case !readsBash(in.Shell):
		return nil
	}
	file, unreadable := readScript(in.Action.Command, syntax.LangBash)
	if unreadable == nil && weak {
		unreadable = readsOtherwise(in.Action.Command, file, in.Shell)
	}
	switch {
	case unreadable == nil:
	case weak || unreadable.certain:
		return deny(v1alpha1.ReasonShellNotParseable, "%s (shell.commands is Allowlisted)", unreadable).at(unreadable.line, unreadable.column)
	default:
		return nil
	}
	names := nameChecker{policy: p, source: in.Action.Command, weak: weak, functions: map[string]bool{}}
	syntax.Walk(file, names.collect)
	syntax.Walk(file, names.check)
	return names.refused
}

// readsBash reports whether the environment's shell reads a script as bash does, as far as names of commands go.
func readsBash(shell []string) bool {
	return len(shell) == 0 || hasField("bash sh dash ash", path.Base(shell[0]))
}

// unreadable says why a script has no syntax tree. certain says that bash can't parse it either: it ends too early. Of a here-document
// without its end bash only warns.
type unreadable struct {
	line, column uint
	why          string
	certain      bool
}

func (u *unreadable) String() string {
	return fmt.Sprintf("line %d, column %d: %s", max(u.line, 1), max(u.column, 1), u.why)
}

// readScript returns the syntax tree of a script. Its work is bounded: by the size of the script, how deep it nests, and how many commands
// it has.
func readScript(text string, language syntax.LangVariant) (*syntax.File, *unreadable) {
	switch {
	case !utf8.ValidString(text):
		return nil, &unreadable{why: "the script is not valid UTF-8: write other bytes as escapes"}
	case hasTooManyCommands(text):
		return nil, &unreadable{why: "the script has too many commands and expansions: split it into several calls"}
	case strings.Contains(text, "\r"):
		return nil, &unreadable{why: "the script has a carriage return, which bash takes for a letter: end lines with a line feed alone"}
	}
	file, err := parse(text, language)
	if err == nil {
		if differs := misread(text, file); differs != nil {
			return nil, differs
		}
		return file, nil
	}
	if errors.Is(err, errNestsTooDeep) {
		return nil, &unreadable{why: "the script nests too deeply, or joins too many commands in one list: split it into several calls"}
	}
	var at syntax.Pos
	why := err.Error()
	if failure, ok := errors.AsType[syntax.ParseError](err); ok {
		at, why = failure.Pos, failure.Text
	}
	if failure, ok := errors.AsType[syntax.LangError](err); ok {
		at = failure.Pos
	}
	name := "bash"
	if language == syntax.LangPOSIX {
		name = "sh"
	}
	return nil, &unreadable{
		line: at.Line(), column: at.Col(), why: "the script can't be parsed as " + name + ": " + printable(cutBytes(why, 200)) + ": write plain " + name,
		certain: syntax.IsIncomplete(err) && !mayRun(text, why) && !endsBefore.MatchString(text[:min(int(at.Offset()), len(text))]),
	}
}

// endsBefore finds a command behind which bash reads nothing.
var endsBefore = regexp.MustCompile(`(?m)(^|[;&|])[ \t]*(exec|exit|return)\b`)

// mayRun reports whether bash may run a script that the parser calls incomplete: bash accepts some ends that the parser rejects.
func mayRun(text, why string) bool {
	for _, what := range []string{"here-document", "cannot form a statement alone", "cannot negate", "variables cannot be arrays", "matching `[` with `]`"} {
		if strings.Contains(why, what) {
			return true
		}
	}
	if !strings.Contains(why, "must be followed by an expression") {
		return false
	}
	// Bash takes the expression of let, and an index, for a word like any other, and refuses an expression without its closing brackets.
	_, err := parse(text+"1))", syntax.LangBash)
	return err != nil && !syntax.IsIncomplete(err)
}

// nameChecker looks at the commands of a script.
type nameChecker struct {
	policy *Policy
	source string
	weak   bool
	// functions are those that the script defines, wherever that is.
	functions map[string]bool
	// defined is where the first command ends that reads a file or a text, which may define other functions; 0 for none.
	defined uint
	// repeated is where the functions and loops so far end: what is in one may run, or run again, later than it stands.
	repeated uint
	refused  *Denial
}

func (n *nameChecker) collect(node syntax.Node) bool {
	switch node := node.(type) {
	case *syntax.FuncDecl:
		if node.Name != nil {
			n.functions[node.Name.Value] = true
		}
	case *syntax.CallExpr:
		if len(node.Args) > 0 {
			name, written := writtenOut(node.Args[0])
			defines := written && hasField("eval source . alias enable", name)
			if end := node.End().Offset(); defines && (n.defined == 0 || end < n.defined) {
				n.defined = end
			}
		}
	}
	return true
}

// mayBeDefined reports whether a name may be a function of a file or a text that the script reads before the command runs.
func (n *nameChecker) mayBeDefined(at syntax.Node) bool {
	start := at.Pos().Offset()
	return n.defined > 0 && (start < n.repeated || start >= n.defined)
}

func (n *nameChecker) check(node syntax.Node) bool {
	switch node := node.(type) {
	case *syntax.FuncDecl, *syntax.WhileClause, *syntax.ForClause:
		n.repeated = max(n.repeated, node.End().Offset())
	case *syntax.CallExpr:
		// An IFS before read changes how that read splits its line, and nothing else.
		reads := len(node.Args) > 0 && node.Args[0].Lit() == "read"
		for _, assign := range node.Assigns {
			if assign.Name != nil && !(reads && assign.Name.Value == "IFS") {
				n.checkAssigned(assign.Name, assign.Name.Value)
			}
		}
		if len(node.Args) > 0 {
			n.checkName(node.Args[0])
		}
		n.checkDeclaring(node.Args)
	case *syntax.DeclClause:
		for _, assign := range node.Args {
			n.checkDeclared(assign)
		}
	case *syntax.WordIter:
		n.checkAssigned(node.Name, node.Name.Value)
	case *syntax.ParamExp:
		if node.Exp != nil && node.Param != nil && (node.Exp.Op == syntax.AssignUnset || node.Exp.Op == syntax.AssignUnsetOrNull) {
			n.checkAssigned(node.Param, node.Param.Value)
		}
	}
	return n.refused == nil
}

// checkName checks the word of a command that names a program.
func (n *nameChecker) checkName(at *syntax.Word) {
	name, written := writtenOut(at)
	rules := &n.policy.binaries
	switch {
	case rules.allowsAny():
	case !written && n.weak:
		start, end := at.Pos().Offset(), at.End().Offset()
		n.refuse(at, rules.names, "the name of the command "+quote(n.source[start:end])+" is not written out",
			"write the program's name itself: binaries.enforcement is Name, which compares names and nothing else")
	case !written || name == "" || hasField(builtins, name) || n.functions[name] || rules.allows(name):
	case !n.weak && (n.mayBeDefined(at) || rules.mayLeadToListed(name)):
	default:
		fix := useListed(rules.names)
		if base := path.Base(name); base != name && rules.listed[base] {
			fix = "use its bare name, " + quote(base) + ", or have the path listed"
		}
		n.refuse(at, rules.names, "the program "+quote(name)+" is not listed in binaries.allowed", fix)
	}
}

// checkDeclared checks an argument of export and its like. One that is quoted, like "PATH=/x", is an assignment too.
func (n *nameChecker) checkDeclared(assign *syntax.Assign) {
	switch {
	case assign.Name != nil && !assign.Naked:
		n.checkAssigned(assign.Name, assign.Name.Value)
	case assign.Name == nil && assign.Value != nil:
		n.checkAssignment(assign.Value)
	}
}

// checkDeclaring checks the arguments of export and its like, where the parser sees a command like any other: "export", \export or
// command export.
func (n *nameChecker) checkDeclaring(words []*syntax.Word) {
	for i, word := range words {
		name, _ := writtenOut(word)
		switch {
		case hasField("command builtin", name), i > 0 && strings.HasPrefix(name, "-"):
			continue
		case hasField(declaring, name):
			for _, argument := range words[i+1:] {
				n.checkAssignment(argument)
			}
		}
		return
	}
}

// checkAssignment checks a word that sets a variable if it has the form of that.
func (n *nameChecker) checkAssignment(word *syntax.Word) {
	text, _ := writtenOut(word)
	if name, _, assigns := strings.Cut(text, "="); assigns {
		n.checkAssigned(word, strings.TrimSuffix(name, "+"))
	}
}

// checkAssigned checks the name of a variable that the script sets.
func (n *nameChecker) checkAssigned(at syntax.Node, name string) {
	if n.weak && matchesName(n.policy.protectedEnv, name) {
		n.refuse(at, nil, "the script sets the variable "+quote(name)+", which the policy's protectedEnv lists because it can change which program runs", "leave it out")
	}
}

func (n *nameChecker) refuse(node syntax.Node, listed []string, what, fix string) {
	if n.refused == nil {
		line, column := node.Pos().Line(), node.Pos().Col()
		n.refused = deny(v1alpha1.ReasonShellCommandNotAllowed, "line %d, column %d: %s (shell.commands is Allowlisted): %s", line, column, what, fix).
			instead(listed).at(line, column)
	}
}

// writtenOut is the text of a word that stands for exactly itself, with or without quotes. For any other ok is false, and text is no
// more than how the word starts.
func writtenOut(w *syntax.Word) (text string, ok bool) {
	if w.Lit() == "[" {
		return "[", true
	}
	var b strings.Builder
	for i, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			if i == 0 && strings.HasPrefix(part.Value, "~") || !unescape(&b, part.Value) {
				return b.String(), false
			}
		case *syntax.SglQuoted:
			if part.Dollar {
				return b.String(), false
			}
			b.WriteString(part.Value)
		case *syntax.DblQuoted:
			if part.Dollar || !writeQuoted(&b, part.Parts) {
				return b.String(), false
			}
		default:
			return b.String(), false
		}
	}
	return b.String(), true
}

func writeQuoted(b *strings.Builder, parts []syntax.WordPart) bool {
	for _, part := range parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			return false
		}
		text, _, escapes := strings.Cut(lit.Value, `\`)
		b.WriteString(text)
		if escapes {
			return false
		}
	}
	return true
}

// unescape writes a text without its backslashes; false where it has a character that stands for others.
func unescape(b *strings.Builder, text string) bool {
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '\\' && i+1 < len(text) {
			i++
			if text[i] != '\n' {
				b.WriteByte(text[i])
			}
			continue
		}
		if strings.IndexByte("*?[{", c) >= 0 {
			return false
		}
		b.WriteByte(c)
	}
	return true
}
