package guards

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// builtin is how one of bash's builtins is judged.
type builtin struct {
	// plain needs no judging: no argument makes it run, assign or evaluate anything.
	plain bool
	// judge decides by the arguments.
	judge func(*walker, []word, *syntax.CallExpr) *refusal
	// why and fix say why it is refused; listable ones are allowed when the policy lists their name.
	why, fix string
	listable bool
	// posix says that other shells have it as well, so that sh -c doesn't look for a program.
	posix bool
}

// newBuiltins is the table of bash's builtins: a script may use those in the first two groups without
// listing, the rest is judged by what it runs or refused.
func newBuiltins() map[string]builtin {
	table := map[string]builtin{}
	add := func(names string, b builtin) {
		for name := range strings.FieldsSeq(names) {
			table[name] = b
		}
	}
	add(": true false cd pwd echo shift return break continue exit", builtin{plain: true, posix: true})

	add("test [", builtin{judge: (*walker).testBuiltin, posix: true})
	add("printf", builtin{judge: (*walker).printfBuiltin, posix: true})
	add("read", builtin{judge: (*walker).readBuiltin, posix: true})
	add("unset", builtin{judge: (*walker).unsetBuiltin, posix: true})
	add("export readonly local", builtin{judge: (*walker).declareBuiltin, posix: true})
	add("declare", builtin{judge: (*walker).declareBuiltin})
	add("set", builtin{judge: (*walker).setBuiltin, posix: true})
	add("wait", builtin{judge: (*walker).waitBuiltin, posix: true})
	add("getopts", builtin{judge: (*walker).getoptsBuiltin, posix: true})

	add("eval", builtin{judge: (*walker).evalBuiltin, posix: true})
	add("trap", builtin{judge: (*walker).trapBuiltin, posix: true})
	add("exec", builtin{judge: (*walker).execBuiltin, posix: true})
	add("command", builtin{judge: (*walker).commandBuiltin, posix: true})
	add("builtin", builtin{judge: (*walker).builtinBuiltin})

	add("source .", builtin{why: "runs a file that can't be judged", fix: "put the commands into the script", posix: true})
	add("alias unalias", builtin{why: "changes what a name means", fix: "define a function with a name of its own", posix: true})
	add("enable hash", builtin{why: "changes which program or builtin a name means", fix: "leave it out", posix: true})
	add("bind complete compgen compopt", builtin{why: "can run any command", fix: "leave it out"})
	add("mapfile readarray", builtin{why: "can run a command for each line", fix: "use while read -r line"})
	add("fc history", builtin{why: "runs commands again", fix: "write the command itself", posix: true})
	add("let", builtin{why: "evaluates its arguments as arithmetic", fix: "use $(( )) with numbers"})
	add("shopt", builtin{why: "changes how bash reads the script", fix: "leave it out"})
	add("typeset nameref", builtin{why: "is not one that scripts may use", fix: "use declare"})
	add("pushd popd dirs suspend logout caller help disown", builtin{
		why: "is not one that scripts may use", fix: "use cd and plain commands", listable: true,
	})
	add("kill type umask ulimit jobs fg bg times", builtin{
		why: "is not one that scripts may use unless binaries.allowed lists it", fix: "leave it out, or have it listed", listable: true, posix: true,
	})
	return table
}

// testBuiltin judges test and [. Their words are only sorted into operators and operands when they run, and
// -v evaluates the subscript of its operand.
func (w *walker) testBuiltin(words []word, _ *syntax.CallExpr) *refusal {
	args := words[1:]
	if words[0].text == "[" && len(args) > 0 && args[len(args)-1].is("]") {
		args = args[:len(args)-1]
	}
	unknown := false
	for i, arg := range args {
		if arg.many && (!arg.numbers || len(args) > 4) {
			return refuse(arg, words[0].text+" may take what "+quote(arg.source)+" expands to for operators", "put it in double quotes, as in \"$name\"")
		}
		if (arg.is("-v") || arg.is("-R")) && i+1 < len(args) && !isName(args[i+1].text) {
			return refuse(arg, arg.text+" would evaluate the subscript in "+quote(args[i+1].source), "test a plain name")
		}
		unknown = unknown || !arg.known || arg.is("-v") || arg.is("-R")
	}
	if !unknown || testShape(args) {
		return nil
	}
	return refuse(words[0], words[0].text+" may take an operand for an operator here", "use one test each, joined by && or ||, or [[ ]]")
}

// testShape says whether the operands can't be taken for operators, whatever they turn out to be.
func testShape(args []word) bool {
	for len(args) > 1 && len(args) < 5 && args[0].is("!") {
		args = args[1:]
	}
	switch len(args) {
	case 0, 1:
		return true
	case 2:
		return args[0].known
	case 3:
		return args[1].known && isBinaryTest(args[1].text)
	default:
		return joinedTests(args, 2) || joinedTests(args, 3)
	}
}

// joinedTests accepts tests of one size that are joined by -a or -o: operators all of one kind stand where
// no operand can move them.
func joinedTests(args []word, size int) bool {
	if (len(args)+1)%(size+1) != 0 {
		return false
	}
	for i, arg := range args {
		switch place := i % (size + 1); {
		case place == size && !arg.is("-a") && !arg.is("-o"):
			return false
		case size == 2 && place == 0 && (!arg.known || !isUnaryTest(arg.text)):
			return false
		case size == 3 && place == 1 && (!arg.known || !isBinaryTest(arg.text)):
			return false
		}
	}
	return true
}

func isBinaryTest(text string) bool {
	switch text {
	case "=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef":
		return true
	}
	return false
}

func isUnaryTest(text string) bool {
	return len(text) == 2 && text[0] == '-' && strings.IndexByte("bcdefghknoprstuwxzLNOGS", text[1]) >= 0
}

func (w *walker) printfBuiltin(words []word, _ *syntax.CallExpr) *refusal {
	if len(words) < 2 {
		return nil
	}
	format := words[1]
	switch {
	case format.many || format.mayBeOption() && !format.known:
		return refuse(format, "printf may take "+quote(format.source)+" for an option, and -v assigns to a name that it evaluates", "use printf '%s' \"$name\"")
	case format.is("--") || !strings.HasPrefix(format.text, "-v"):
		return nil
	case format.is("-v") && len(words) > 2:
		return w.assignedNames(words[2:3])
	case format.known:
		return w.assignedNames([]word{{text: format.text[2:], known: true, source: format.source, line: format.line, column: format.column}})
	default:
		return refuse(format, "printf -v would evaluate "+quote(format.source), "name a plain variable")
	}
}

// assignedNames judges names that a builtin assigns.
func (w *walker) assignedNames(names []word) *refusal {
	for _, name := range names {
		if !name.known || name.derived || !isName(name.text) {
			return refuse(name, "a builtin would evaluate "+quote(name.source)+" as the name of a variable", "write a plain name, without a subscript")
		}
		if w.policy.protectedName(name.text) || name.text == "RANDOM" {
			return refuse(name, "it assigns the variable "+name.text+", which protectedEnv or bash itself keeps because it can make another program run", "leave it as it is")
		}
	}
	return nil
}

func (w *walker) readBuiltin(words []word, _ *syntax.CallExpr) *refusal {
	options, names, refused := splitOptions(words, optionSet{flags: "rs", values: "dinNptua", names: "a"})
	if refused != nil {
		return refused
	}
	return firstRefusal(w.assignedNames(options), w.assignedNames(names))
}

func (w *walker) unsetBuiltin(words []word, _ *syntax.CallExpr) *refusal {
	_, names, refused := splitOptions(words, optionSet{flags: "v"})
	if refused != nil {
		return refused
	}
	for _, name := range names {
		if w.functions[name.text] != nil {
			return refuse(name, "unset may remove the function "+quote(name.text)+", and its name would mean a program", "leave it defined")
		}
	}
	return w.assignedNames(names)
}

// declareBuiltin judges export and its like where bash reads their arguments as ordinary words.
func (w *walker) declareBuiltin(words []word, _ *syntax.CallExpr) *refusal {
	flags := ""
	for _, arg := range words[1:] {
		if arg.known && strings.HasPrefix(arg.text, "-") {
			flags += arg.text[1:]
		}
	}
	for _, arg := range words[1:] {
		if refused := w.declWord(arg, words[0], flags); refused != nil {
			return refused
		}
	}
	return nil
}

func harmlessSetOption(name string) bool {
	return slices.Contains([]string{
		"allexport", "braceexpand", "errexit", "errtrace", "functrace", "hashall", "noclobber", "noglob", "nolog",
		"notify", "nounset", "physical", "pipefail", "verbose", "xtrace",
	}, name)
}

// setBuiltin allows options that don't change how bash reads the script.
func (w *walker) setBuiltin(words []word, _ *syntax.CallExpr) *refusal {
	for i := 1; i < len(words); i++ {
		arg := words[i]
		switch {
		case arg.is("--") || arg.is("-"):
			return nil
		case !arg.known && (arg.many || arg.mayBe("-") || arg.mayBe("+") || strings.HasPrefix(arg.text, "-") || strings.HasPrefix(arg.text, "+")):
			return refuse(arg, "set may take "+quote(arg.source)+" for an option", "write set -- before it")
		case arg.text == "" || arg.text[0] != '-' && arg.text[0] != '+':
			return nil
		}
		letters := arg.text[1:]
		if strings.HasSuffix(letters, "o") && i+1 < len(words) {
			letters = strings.TrimSuffix(letters, "o")
			if i++; !words[i].known || !harmlessSetOption(words[i].text) {
				return refuse(words[i], "the option "+quote(words[i].source)+" of set changes how bash reads the script", "leave it out")
			}
		}
		if strings.Trim(letters, "aefuxvbCETBhP") != "" {
			return refuse(arg, "the option "+quote(arg.text)+" of set changes how bash reads the script, or can't be judged", "use options like -e, -u, -x and -o pipefail")
		}
	}
	return nil
}

func (w *walker) waitBuiltin(words []word, _ *syntax.CallExpr) *refusal {
	for _, arg := range words[1:] {
		if arg.many && !arg.numbers || arg.mayBeOption() && !arg.numbers && !arg.is("-n") && !arg.is("-f") && !w.processID(arg) {
			return refuse(arg, "wait may take "+quote(arg.source)+" for an option, and -p assigns to a name that it evaluates", "use wait, wait $! or a variable that was set to $!")
		}
	}
	return nil
}

// processID says whether the word is $! or a variable that only holds numbers.
func (w *walker) processID(arg word) bool {
	name := strings.Trim(arg.source, "\"${}")
	return strings.HasPrefix(strings.TrimPrefix(arg.source, "\""), "$") && (name == "!" || w.isNumeric(name))
}

func (w *walker) getoptsBuiltin(words []word, _ *syntax.CallExpr) *refusal {
	if len(words) < 3 {
		return nil
	}
	if words[1].many || words[1].mayBeOption() {
		return refuse(words[1], "getopts may take "+quote(words[1].source)+" for an option", "write the letters themselves")
	}
	return w.assignedNames(words[2:3])
}
