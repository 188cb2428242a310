package guards

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// innerScript returns the parsed text of an eval or a trap whose text is known, else nil. It is parsed once.
func (w *walker) innerScript(name word, cmd *syntax.CallExpr) *syntax.File {
	if !name.is("eval") && !name.is("trap") || cmd == nil {
		return nil
	}
	if file, ok := w.inner[cmd]; ok || w.facts != nil {
		// Only what was there when the facts were collected may run.
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
	if text == "" || len(w.inner) > maxInner || w.innerBytes > maxInnerBytes || unreadable(text) != nil {
		return nil
	}
	if _, odd := replaceOdd(text); odd >= 0 {
		return nil
	}
	file, err := w.policy.parsers.parse(text, w.lang)
	if err != nil {
		return nil
	}
	return file
}

// maxInner and maxInnerBytes bound the texts of eval and trap that one script may hold, in all.
const (
	maxInner      = 200
	maxInnerBytes = 65536
)

// evalText is what eval runs: its arguments with spaces between.
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

// trapText is what trap runs later; empty when it runs nothing.
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

// runInner judges a text that this same shell runs.
func (w *walker) runInner(name word, text string, cmd *syntax.CallExpr) *refusal {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	file := w.innerScript(name, cmd)
	if file == nil {
		return &refusal{
			what: "the text that " + name.text + " runs, " + quote(text) + ", can't be parsed as bash", fix: "write the command itself",
			parse: true, line: name.line, col: name.column,
		}
	}
	outer := w.source
	w.source = text
	defer func() { w.source = outer }()
	refused := w.nested(name, func() *refusal {
		return w.apart(func() *refusal { return w.statements(file.Stmts) })
	})
	if refused != nil {
		refused.what = "in the text that " + name.text + " runs: " + refused.what
	}
	return refused.placed(name)
}

// execBuiltin judges exec: redirections alone are harmless, else it runs a program, never a function.
func (w *walker) execBuiltin(words []word, _ *syntax.CallExpr) *refusal {
	_, rest, refused := splitOptions(words, optionSet{flags: "c"})
	if refused != nil || len(rest) == 0 {
		return refused
	}
	return w.program(rest)
}

// commandBuiltin judges command: it passes over functions, and -v and -V only look a name up.
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
	return w.runBuiltin(rest, cmd)
}

func (w *walker) builtinBuiltin(words []word, cmd *syntax.CallExpr) *refusal {
	_, rest, refused := splitOptions(words, optionSet{})
	if refused != nil || len(rest) == 0 {
		return refused
	}
	if _, ok := w.policy.shellBuiltins[rest[0].text]; !rest[0].known || rest[0].derived || !ok {
		return refuse(rest[0], "builtin runs "+quote(rest[0].source)+", which can't be judged", "write the name itself")
	}
	return w.runBuiltin(rest, cmd)
}
