package guards

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// builtin describes a builtin of bash.
type builtin struct {
	// plain says that no argument makes it run, assign or evaluate anything.
	plain bool
	// check checks the arguments.
	check func(*walker, []word, *syntax.CallExpr) *refusal
	// why says why it is refused and fix what would pass. A listable builtin is allowed if the policy lists its name.
	why, fix string
	listable bool
	// posix says that other shells have the builtin too, so that sh -c doesn't run a program of that name.
	posix bool
}

// newBuiltins is the table of bash's builtins. A script may use those of the first two groups without listing them. The
// others are checked by what they run, or refused.
func newBuiltins() map[string]builtin {
	table := map[string]builtin{}
	add := func(names string, b builtin) {
		for name := range strings.FieldsSeq(names) {
			table[name] = b
		}
	}
	add(": true false cd pwd echo shift return break continue exit", builtin{plain: true, posix: true})

	add("test [", builtin{check: (*walker).testBuiltin, posix: true})
	add("printf", builtin{check: (*walker).printfBuiltin, posix: true})
	add("read", builtin{check: (*walker).readBuiltin, posix: true})
	add("unset", builtin{check: (*walker).unsetBuiltin, posix: true})
	add("export readonly local", builtin{check: (*walker).declareBuiltin, posix: true})
	add("declare", builtin{check: (*walker).declareBuiltin})
	add("set", builtin{check: (*walker).setBuiltin, posix: true})
	add("wait", builtin{check: (*walker).waitBuiltin, posix: true})
	add("getopts", builtin{check: (*walker).getoptsBuiltin, posix: true})

	add("eval", builtin{check: (*walker).evalBuiltin, posix: true})
	add("trap", builtin{check: (*walker).trapBuiltin, posix: true})
	add("exec", builtin{check: (*walker).execBuiltin, posix: true})
	add("command", builtin{check: (*walker).commandBuiltin, posix: true})
	add("builtin", builtin{check: (*walker).builtinBuiltin})

	add("source .", builtin{why: "runs a file that can't be checked", fix: "put the commands into the script", posix: true})
	add("alias unalias", builtin{why: "changes what a name means", fix: "define a function with a name of its own", posix: true})
	add("enable hash", builtin{why: "changes which program or builtin a name means", fix: "leave it out", posix: true})
	add("bind complete compgen compopt", builtin{why: "can run any command", fix: "leave it out"})
	add("mapfile readarray", builtin{why: "can run a command for each line", fix: "use while read -r line"})
	add("fc history", builtin{why: "runs commands again", fix: "write the command itself", posix: true})
	add("let", builtin{why: "evaluates its arguments as arithmetic", fix: "use $(( )) with numbers"})
	add("shopt", builtin{why: "changes how bash parses the script", fix: "leave it out"})
	add("typeset nameref", builtin{why: "is not one that scripts may use", fix: "use declare"})
	add("pushd popd dirs suspend logout caller help disown", builtin{
		why: "is not one that scripts may use", fix: "use cd and plain commands", listable: true,
	})
	add("kill type umask ulimit jobs fg bg times", builtin{
		why: "is not one that scripts may use unless binaries.allowed lists it", fix: "leave it out, or have it listed", listable: true, posix: true,
	})
	return table
}

// testBuiltin checks test and [. They tell operators from operands only when they run, and -v evaluates the subscript of
// its operand.
func (w *walker) testBuiltin(words []word, _ *syntax.CallExpr) *refusal {
	args := words[1:]
	if words[0].text == "[" && len(args) > 0 && args[len(args)-1].is("]") {
		args = args[:len(args)-1]
	}
	unknown := false
	for i, arg := range args {
		if arg.many && (!arg.numbers || len(args) > 4) {
			return refuse(arg, quote(arg.source)+" may expand to operators of "+words[0].text, "put it in double quotes, as in \"$name\"")
		}
		if (arg.is("-v") || arg.is("-R")) && i+1 < len(args) && !isName(args[i+1].text) {
			return refuse(arg, arg.text+" would evaluate the subscript in "+quote(args[i+1].source), "test a plain name")
		}
		unknown = unknown || !arg.known || arg.is("-v") || arg.is("-R")
	}
	if !unknown || testShape(args) {
		return nil
	}
	return refuse(words[0], "an operand of "+words[0].text+" may be taken for an operator", "use one test each, joined by && or ||, or [[ ]]")
}

// testShape reports whether no operand can be taken for an operator, whatever it expands to.
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

// joinedTests accepts tests of one size that are joined by -a or -o. Their operators are in fixed positions.
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
		return refuse(format, quote(format.source)+" may expand to the option -v of printf, which evaluates a name", "use printf '%s' \"$name\"")
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

// assignedNames checks the names of variables that a builtin assigns.
func (w *walker) assignedNames(names []word) *refusal {
	for _, name := range names {
		if !name.known || name.derived || !isName(name.text) {
			return refuse(name, "a builtin would evaluate "+quote(name.source)+" as the name of a variable", "write a plain name, without a subscript")
		}
		if w.policy.protectedName(name.text) || name.text == "RANDOM" {
			return refuse(name, "the script assigns the variable "+name.text+", which is protected because it can change which program runs", "don't assign it")
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
			return refuse(name, "unset may remove the function "+quote(name.text)+", after which its name would mean a program", "don't unset it")
		}
	}
	return w.assignedNames(names)
}

// declareBuiltin checks export, readonly, local and declare where bash takes their arguments for ordinary words.
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
			return refuse(arg, quote(arg.source)+" may expand to an option of set", "write set -- before it")
		case arg.text == "" || arg.text[0] != '-' && arg.text[0] != '+':
			return nil
		}
		letters := arg.text[1:]
		if strings.HasSuffix(letters, "o") && i+1 < len(words) {
			letters = strings.TrimSuffix(letters, "o")
			if i++; !words[i].known || !harmlessSetOption(words[i].text) {
				return refuse(words[i], "the option "+quote(words[i].source)+" of set changes how bash parses the script", "leave it out")
			}
		}
		if strings.Trim(letters, "aefuxvbCETBhP") != "" {
			return refuse(arg, "the option "+quote(arg.text)+" of set changes how bash parses the script, or can't be checked", "use options like -e, -u, -x and -o pipefail")
		}
	}
	return nil
}

func (w *walker) waitBuiltin(words []word, _ *syntax.CallExpr) *refusal {
	for _, arg := range words[1:] {
		if arg.many && !arg.numbers || arg.mayBeOption() && !arg.numbers && !arg.is("-n") && !arg.is("-f") && !w.processID(arg) {
			return refuse(arg, quote(arg.source)+" may expand to the option -p of wait, which evaluates a name", "use wait, wait $! or a variable that was set to $!")
		}
	}
	return nil
}

// processID reports whether the word is $! or a variable that holds numbers only.
func (w *walker) processID(arg word) bool {
	name := strings.Trim(arg.source, "\"${}")
	return strings.HasPrefix(strings.TrimPrefix(arg.source, "\""), "$") && (name == "!" || w.isNumeric(name))
}

func (w *walker) getoptsBuiltin(words []word, _ *syntax.CallExpr) *refusal {
	if len(words) < 3 {
		return nil
	}
	if words[1].many || words[1].mayBeOption() {
		return refuse(words[1], quote(words[1].source)+" may expand to an option of getopts", "write the letters themselves")
	}
	return w.assignedNames(words[2:3])
}
