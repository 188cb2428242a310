package guards

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"

	"toolcall.dev/operator/api/v1alpha1"
)

const (
	// maxDepth bounds how deep scripts within scripts and launchers of launchers nest.
	maxDepth = 8
	// workPerByte bounds the steps of a check for each byte of the call. Parsing a byte is one step.
	workPerByte = 6
	// leastWork is the bound for short calls.
	leastWork = 65536
	// stepsPerScript is what a script costs beside its bytes.
	stepsPerScript = 256
	// maxSeparators bounds the characters of a script that can begin a command or an expansion, each of which takes longer
	// to check than the bytes of a word.
	maxSeparators = 8192
)

func (p *Policy) checkShellEnabled(*Input) *Denial {
	if p.shellEnabled {
		return nil
	}
	return deny(v1alpha1.ReasonShellDisabled, "shell calls are disabled (shell.enabled is false): use a structured call, with binary and args")
}

func (p *Policy) checkCommandGiven(in *Input) *Denial {
	if strings.TrimSpace(in.Action.Command) == "" {
		return deny(v1alpha1.ReasonEmptyCommand, "the command is empty: give a command line, like \"ls -l\"")
	}
	if at := strings.IndexByte(in.Action.Command, 0); at >= 0 {
		return deny(v1alpha1.ReasonInvalidArguments, "byte %d of the command is NUL, at which every shell's argument ends: remove it, or write \\0 in a format of printf", at)
	}
	return nil
}

func (p *Policy) checkShellCommands(in *Input) *Denial {
	if !p.allowlisted {
		return nil
	}
	if p.binaries.enforcement == v1alpha1.EnforcementKernel {
		return denyCommand(p.checkNames(in))
	}
	if !bashPrefix(in.Shell) {
		return deny(v1alpha1.ReasonShellCommandNotAllowed,
			"the environment's shell is %s, and binaries.enforcement Text can only check scripts for bash -c: use an environment whose shell is bash -c",
			quote(strings.Join(in.Shell, " ")))
	}
	checker := newChecker(p, in.Env, len(in.Action.Command))
	printed, refused := checker.callScript(in.Action.Command)
	in.script = printed
	return denyCommand(refused)
}

func denyCommand(refused *refusal) *Denial {
	if refused == nil {
		return nil
	}
	reason := v1alpha1.ReasonShellCommandNotAllowed
	if refused.parse {
		reason = v1alpha1.ReasonShellNotParseable
	}
	return deny(reason, "line %d, column %d: %s (shell.commands is Allowlisted): %s",
		max(refused.line, 1), max(refused.col, 1), refused.what, refused.fix)
}

// bashPrefix reports whether the environment's shell is bash -c. Flags that only make bash stop or report earlier are
// allowed; others may run startup files or change the syntax.
func bashPrefix(shell []string) bool {
	if len(shell) == 0 {
		return true
	}
	if path.Base(shell[0]) != "bash" {
		return false
	}
	words := make([]word, len(shell))
	for i, arg := range shell {
		words[i] = literal(arg)
	}
	i, isCommand := shellFlags(words)
	return i == len(words) && isCommand
}

// checker checks which programs a call may start. Each check has its own.
type checker struct {
	policy *Policy
	env    []v1alpha1.CallEnvVar
	depth  int
	// homeSet says that HOME or PWD may hold something other than a path.
	homeSet bool
	// work counts the steps of the whole check, and maxWork bounds them.
	work, maxWork int
}

func newChecker(p *Policy, env []v1alpha1.CallEnvVar, size int) *checker {
	return &checker{policy: p, env: env, maxWork: workPerByte*size + leastWork}
}

// spend counts steps, and refuses a call that takes too many.
func (c *checker) spend(at word, steps int) *refusal {
	c.work += steps
	if c.work <= c.maxWork {
		return nil
	}
	return &refusal{what: "checking it takes too many steps for its size", fix: "split it into several calls", parse: true, line: at.line, col: at.column}
}

// nested checks by f something that is nested within a command.
func (c *checker) nested(at word, f func() *refusal) *refusal {
	c.depth++
	defer func() { c.depth-- }()
	if c.depth > maxDepth {
		return refuse(at, "commands are nested too deeply", "run the inner command directly")
	}
	return f()
}

// callScript checks the script of a call and returns the text that bash is to run: the script as printed from its syntax
// tree. What was judged is what runs. The tree of the script is judged first, for the positions in messages; what counts
// is the tree of the printed text, which must print to itself.
func (c *checker) callScript(text string) (string, *refusal) {
	file, refused := c.parse(text, syntax.LangBash)
	if refused != nil {
		return "", refused
	}
	if refused := newWalker(c, text, syntax.LangBash, scriptOfCall).file(file); refused != nil {
		return "", refused
	}
	printed, err := printScript(file)
	if errors.Is(err, errTooLong) {
		return "", &refusal{what: fmt.Sprintf("the script takes more than %d bytes when it is printed from its syntax tree", maxCommandBytes), fix: "split it into several calls", parse: true}
	}
	if err != nil {
		return "", unprintable()
	}
	again, refused := c.parse(printed, syntax.LangBash)
	if refused != nil {
		return "", unprintable()
	}
	if second, err := printScript(again); err != nil || second != printed {
		return "", unprintable()
	}
	if refused := newWalker(c, printed, syntax.LangBash, scriptAsPrinted).file(again); refused != nil {
		return "", refused
	}
	if len(again.Stmts) == 0 {
		// Nothing but comments, which other parsers may end elsewhere.
		return ":\n", nil
	}
	return printed, nil
}

func unprintable() *refusal {
	return &refusal{what: "the script reads differently after it is printed from its syntax tree", fix: "write it in a simpler way, with one command on each line", parse: true}
}

// errTooLong is the printer's error for a script that is too long to be an argument.
var errTooLong = errors.New("the script is too long")

// boundedText takes as much as an argument holds: indentation can make a script longer than the call.
type boundedText struct {
	text []byte
}

func (b *boundedText) Write(text []byte) (int, error) {
	if len(b.text)+len(text) > maxCommandBytes {
		return 0, errTooLong
	}
	b.text = append(b.text, text...)
	return len(text), nil
}

func printScript(file *syntax.File) (string, error) {
	var printed boundedText
	err := syntax.NewPrinter().Print(&printed, file)
	return string(printed.text), err
}

// innerScript checks a script that another shell reads as it is written, like that of bash -c.
func (c *checker) innerScript(text string, lang syntax.LangVariant) *refusal {
	file, refused := c.parse(text, lang)
	if refused != nil {
		return refused
	}
	return newWalker(c, text, lang, scriptOfLauncher).file(file)
}

func (c *checker) parse(text string, lang syntax.LangVariant) (*syntax.File, *refusal) {
	if refused := firstRefusal(c.spend(word{}, len(text)+stepsPerScript), checkReadable(text), c.checkParserVariables(text)); refused != nil {
		return nil, refused
	}
	file, err := c.policy.parsers.parse(text, lang)
	if err != nil {
		return nil, parseRefusal(err)
	}
	return file, nil
}

// checkParserVariables refuses variables of the call that change how bash reads the script.
func (c *checker) checkParserVariables(text string) *refusal {
	for _, variable := range c.env {
		switch {
		case variable.Name == "POSIXLY_CORRECT", variable.Name == "BASH_COMPAT":
		case isLocaleName(variable.Name) && !plainLocale(variable.Value) && !isASCII(text):
		default:
			continue
		}
		return &refusal{what: "the call sets the variable " + variable.Name + ", which changes how bash parses the script", fix: "leave it out of env"}
	}
	return nil
}

func isLocaleName(name string) bool {
	return name == "LANG" || strings.HasPrefix(name, "LC_")
}

// plainLocale reports whether the character set of the locale is UTF-8 or ASCII. In others the second byte of a character
// can be a quote or a backslash.
func plainLocale(value string) bool {
	value = strings.ToLower(value)
	return value == "" || value == "c" || value == "posix" || strings.HasSuffix(value, "utf-8") || strings.HasSuffix(value, "utf8")
}

// checkReadable refuses texts that the parser must not be given.
func checkReadable(text string) *refusal {
	refuseText := func(what, fix string) *refusal { return &refusal{what: what, fix: fix, parse: true} }
	if !utf8.ValidString(text) {
		return refuseText("the script is not valid UTF-8", "write other bytes as escapes")
	}
	odd := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' || r == 0x7f })
	if odd >= 0 {
		refused := refuseText("the script contains the control character "+quote(text[odd:odd+1])+", which can hide what runs", "leave it out, or write it as an escape")
		refused.line, refused.col = position(text, odd)
		return refused
	}
	if hasTooManyCommands(text) {
		return refuseText("the script has too many commands and expansions", "split it into several calls")
	}
	return nil
}

func parseRefusal(err error) *refusal {
	if errors.Is(err, errNestsTooDeep) {
		return &refusal{what: "the script nests too deeply, or joins too many commands in one list", fix: "split it into several calls", parse: true}
	}
	refused := &refusal{what: "the script can't be parsed as bash", fix: "write plain bash", parse: true}
	if failure, ok := errors.AsType[syntax.ParseError](err); ok {
		refused.what = "the script can't be parsed as bash: " + printable(cutBytes(failure.Text, 200))
		refused.line, refused.col = failure.Pos.Line(), failure.Pos.Col()
	}
	if failure, ok := errors.AsType[syntax.LangError](err); ok {
		refused.what = "the script can't be parsed as bash: " + printable(cutBytes(failure.Error(), 200))
		refused.line, refused.col = failure.Pos.Line(), failure.Pos.Col()
	}
	return refused
}

func position(text string, offset int) (line, column uint) {
	before := text[:offset]
	start := strings.LastIndexByte(before, '\n') + 1
	return uint(strings.Count(before, "\n")) + 1, uint(offset-start) + 1
}
