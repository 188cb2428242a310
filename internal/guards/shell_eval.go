package guards

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// innerScript returns the parsed text of eval or trap, or nil if the text isn't known. It parses each text once.
func (w *walker) innerScript(name word, cmd *syntax.CallExpr) *syntax.File {
	if !name.is("eval") && !name.is("trap") || cmd == nil {
		return nil
	}
	if file, ok := w.inner[cmd]; ok || w.facts != nil {
		// A text that was not parsed when the facts were collected must not run.
		return file
	}
	words := make([]word, len(cmd.Args))
	for i, arg := range cmd.Args {
		words[i] = w.read(arg)
	}
	for len(words) > 0 && !words[0].is(name.text) {
		words = words[1:]
	}
	text := ""
	if name.text == "eval" {
		text, _ = evalText(words)
	} else {
		text, _ = trapText(words)
	}
	w.inner[cmd] = w.parseInner(text)
	return w.inner[cmd]
}

func (w *walker) parseInner(text string) *syntax.File {
	w.innerBytes += len(text)
	if text == "" || len(w.inner) > maxInner || w.innerBytes > maxInnerBytes || w.spend(word{}, len(text)) != nil || checkReadable(text) != nil {
		return nil
	}
	if _, odd := replaceControlCharacters(text); odd >= 0 {
		return nil
	}
	file, err := w.policy.parsers.parse(text, w.lang)
	if err != nil {
		return nil
	}
	return file
}

// maxInner and maxInnerBytes bound the texts of eval and trap in a script.
const (
	maxInner      = 200
	maxInnerBytes = 65536
)

// evalText returns what eval runs: its arguments, separated by spaces.
func evalText(words []word) (string, *refusal) {
	var parts []string
	for i, arg := range words[1:] {
		if i == 0 && arg.is("--") {
			continue
		}
		if !arg.known || arg.derived {
			return "", refuse(arg, "eval runs "+quote(arg.source)+", which is only known at run time", "write the command itself")
		}
		parts = append(parts, arg.text)
	}
	return strings.Join(parts, " "), nil
}

// trapText returns what trap runs later, which may be nothing.
func trapText(words []word) (string, *refusal) {
	args := words[1:]
	if len(args) > 0 && (args[0].is("-p") || args[0].is("-l")) {
		return "", nil
	}
	if len(args) > 0 && args[0].is("--") {
		args = args[1:]
	}
	if len(args) == 0 || args[0].is("-") || args[0].is("") {
		return "", nil
	}
	if !args[0].known || args[0].derived || strings.HasPrefix(args[0].text, "-") {
		return "", refuse(args[0], "trap runs "+quote(args[0].source)+", which is only known at run time", "write the command itself, in quotes")
	}
	return args[0].text, nil
}

func (w *walker) evalBuiltin(words []word, cmd *syntax.CallExpr) *refusal {
	text, refused := evalText(words)
	if refused != nil {
		return refused
	}
	return w.runInner(words[0], text, cmd)
}

func (w *walker) trapBuiltin(words []word, cmd *syntax.CallExpr) *refusal {
	text, refused := trapText(words)
	if refused != nil {
		return refused
	}
	return w.runInner(words[0], text, cmd)
}

// runInner checks a text that the same shell runs.
func (w *walker) runInner(name word, text string, cmd *syntax.CallExpr) *refusal {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	file := w.innerScript(name, cmd)
	if file == nil {
		return &refusal{
			what: "the text " + quote(text) + " of " + name.text + " can't be checked: it isn't plain bash, or the script has too many such texts", fix: "write the command itself",
			parse: true, line: name.line, col: name.column,
		}
	}
	outer := w.source
	w.source = text
	defer func() { w.source = outer }()
	refused := w.nested(name, func() *refusal {
		return w.inChildScope(func() *refusal { return w.statements(file.Stmts) })
	})
	if refused != nil {
		refused.what = "in the text of " + name.text + ": " + refused.what
	}
	return refused.withPosition(name)
}

// execBuiltin checks exec, which runs a program if it has arguments, never a function.
func (w *walker) execBuiltin(words []word, _ *syntax.CallExpr) *refusal {
	_, rest, refused := splitOptions(words, optionSet{flags: "c"})
	if refused != nil || len(rest) == 0 {
		return refused
	}
	return w.checkProgram(rest)
}

// commandBuiltin checks command, which ignores functions. With -v and -V it runs nothing.
func (w *walker) commandBuiltin(words []word, cmd *syntax.CallExpr) *refusal {
	if len(words) > 1 && (words[1].is("-v") || words[1].is("-V")) {
		return nil
	}
	_, rest, refused := splitOptions(words, optionSet{})
	if refused != nil || len(rest) == 0 {
		return refused
	}
	if !rest[0].known || rest[0].derived {
		return refuse(rest[0], "the name of the command "+quote(rest[0].source)+" is only known at run time", "write the name itself")
	}
	return w.checkBuiltin(rest, cmd)
}

func (w *walker) builtinBuiltin(words []word, cmd *syntax.CallExpr) *refusal {
	_, rest, refused := splitOptions(words, optionSet{})
	if refused != nil || len(rest) == 0 {
		return refused
	}
	if _, ok := w.policy.shellBuiltins[rest[0].text]; !rest[0].known || rest[0].derived || !ok {
		return refuse(rest[0], "builtin runs "+quote(rest[0].source)+", which can't be checked", "write the name itself")
	}
	return w.checkBuiltin(rest, cmd)
}
