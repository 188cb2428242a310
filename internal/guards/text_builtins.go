package guards

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// builtin describes a builtin of bash.
type builtin struct {
	// plain says that no argument makes it run, assign or evaluate anything.
	plain bool
	// check checks the arguments.
	check func(*walker, []word) *refusal
	// why says why it is refused and fix what would pass. A listable builtin is allowed if the policy lists its name.
	why, fix string
	listable bool
	// posix says that other shells have the builtin too, so that sh -c doesn't run a program of that name.
	posix bool
}

// newBuiltins is the table of bash's builtins. A script may use those of the first two groups without listing them. The
// others are refused.
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
	add("set", builtin{check: (*walker).setBuiltin, posix: true})
	add("wait", builtin{check: (*walker).waitBuiltin, posix: true})
	add("getopts", builtin{check: (*walker).getoptsBuiltin, posix: true})
	add("trap", builtin{check: (*walker).trapBuiltin, posix: true})
	add("exec", builtin{check: (*walker).execBuiltin, posix: true})
	add("command", builtin{check: (*walker).commandBuiltin, posix: true})
	add("jobs", builtin{check: (*walker).jobsBuiltin, posix: true})

	add("eval", builtin{why: "runs a text", fix: "write the command itself", posix: true})
	add("builtin", builtin{why: "changes what a name means", fix: "write the command itself"})
	add("export readonly local declare typeset nameref", builtin{why: "is not written in its plain form", fix: "write export name=\"$value\", without quotes around the name and without options", posix: true})
	add("source .", builtin{why: "runs a file that can't be checked", fix: "put the commands into the script, or have source listed in binaries.allowed", posix: true, listable: true})
	add("alias unalias", builtin{why: "changes what a name means", fix: "define a function with a name of its own", posix: true})
	add("enable hash", builtin{why: "changes which program or builtin a name means", fix: "leave it out", posix: true})
	add("bind complete compgen compopt", builtin{why: "can run any command", fix: "leave it out"})
	add("mapfile readarray", builtin{why: "can run a command for each line", fix: "use while read -r line"})
	add("fc history", builtin{why: "runs commands again", fix: "write the command itself", posix: true})
	add("let", builtin{why: "evaluates its arguments as arithmetic", fix: "use $(( )) with numbers"})
	add("shopt", builtin{why: "changes how bash parses the script", fix: "leave it out"})
	add("pushd popd dirs suspend logout caller help disown", builtin{why: "is not one that scripts may use", fix: "use cd and plain commands"})
	add("kill type umask ulimit fg bg times", builtin{
		why: "is not one that scripts may use unless binaries.allowed lists it", fix: "leave it out, or have it listed", listable: true, posix: true,
	})
	return table
}

// call checks a simple command: its assignments, what its words expand, and what its name means.
func (w *walker) call(cmd *syntax.CallExpr) *refusal {
	for _, assign := range cmd.Assigns {
		// An empty IFS before read changes how that read splits its line, and nothing else.
		if isEmptyIFS(assign) && len(cmd.Args) > 0 && cmd.Args[0].Lit() == "read" {
			continue
		}
		if refused := w.assignment(assign); refused != nil {
			return refused
		}
	}
	if refused := w.words(cmd.Args); refused != nil || len(cmd.Args) == 0 {
		return refused
	}
	words := make([]word, len(cmd.Args))
	for i, arg := range cmd.Args {
		words[i] = w.read(arg)
	}
	name := words[0]
	if !name.known || name.derived {
		return refuse(name, "the name of the command "+quote(name.source)+" is only known at run time", "write the name itself")
	}
	if w.functions[name.text] {
		return nil
	}
	return w.checkBuiltin(words)
}

func isEmptyIFS(assign *syntax.Assign) bool {
	return assign.Name != nil && assign.Name.Value == "IFS" && !assign.Append && assign.Index == nil && assign.Array == nil &&
		(assign.Value == nil || len(assign.Value.Parts) == 0)
}

// checkBuiltin checks a command that is a builtin or a program.
func (w *walker) checkBuiltin(words []word) *refusal {
	b, ok := w.policy.shellBuiltins[words[0].text]
	switch {
	case !ok || w.lang == syntax.LangPOSIX && !b.posix:
		return w.checkProgram(words)
	case b.check != nil:
		return b.check(w, words)
	case b.plain || b.listable && w.policy.binaries.listed[words[0].text]:
		return nil
	}
	return refuse(words[0], "the builtin "+quote(words[0].text)+" "+b.why, b.fix)
}

func (w *walker) assignment(assign *syntax.Assign) *refusal {
	name := assign.Name.Value
	if refused := w.assignable(assign, name); refused != nil {
		return refused
	}
	if isLocaleName(name) {
		if value := w.readValue(assign.Value); !value.known || !plainLocale(value.text) {
			return w.refuseAt(assign, "the locale "+quote(value.source)+" changes how bash parses the script", "use C, POSIX, or a locale with UTF-8")
		}
	}
	if assign.Index != nil {
		if refused := w.subscript(assign.Index); refused != nil {
			return refused
		}
	}
	if assign.Array == nil {
		return w.word(assign.Value)
	}
	for _, element := range assign.Array.Elems {
		if element.Index != nil {
			return w.refuseAt(element, "bash evaluates the subscript of an element", "list the elements in their order")
		}
		if refused := w.word(element.Value); refused != nil {
			return refused
		}
	}
	return nil
}

func (w *walker) readValue(value *syntax.Word) word {
	if value == nil {
		return word{known: true}
	}
	return w.read(value)
}

// declClause accepts export, readonly and local of plain names, without options.
func (w *walker) declClause(cmd *syntax.DeclClause) *refusal {
	variant := cmd.Variant.Value
	switch {
	case variant == "local" && !w.inFunction:
		return w.refuseAt(cmd, "local stands outside of a function, where it sets nothing", "leave local out")
	case variant != "export" && variant != "readonly" && variant != "local":
		return w.refuseAt(cmd, "the builtin "+quote(variant)+" gives variables attributes by which bash evaluates their values", "use a plain assignment, export, or local in a function")
	}
	for _, assign := range cmd.Args {
		if assign.Name == nil || assign.Array != nil || assign.Index != nil || assign.Append {
			return w.refuseAt(assign, quote(w.sourceOf(assign))+" is not a plain name, with or without a value", "write "+variant+" name=\"$value\", without options")
		}
		if refused := w.assignment(assign); refused != nil {
			return refused
		}
	}
	return nil
}

// trapBuiltin accepts a text that passes as a script and sets no variable, or a function that is defined before.
func (w *walker) trapBuiltin(words []word) *refusal {
	args := words[1:]
	if len(args) > 0 && args[0].is("--") {
		args = args[1:]
	}
	if len(args) == 0 || args[0].is("-p") || args[0].is("-l") || args[0].is("-") || args[0].is("") || w.functions[args[0].text] && args[0].known {
		return nil
	}
	if !args[0].known || args[0].derived || strings.HasPrefix(args[0].text, "-") {
		return refuse(args[0], "trap runs "+quote(args[0].source)+", which is only known at run time", "write the command itself, in single quotes")
	}
	return w.nested(words[0], func() *refusal {
		file, refused := w.parse(args[0].text, syntax.LangBash)
		if refused == nil {
			refused = newWalker(w.checker, args[0].text, w.lang, scriptOfTrap).file(file)
		}
		if refused != nil {
			refused.what = "in the text of trap: " + refused.what
		}
		return refused.withPosition(words[0])
	})
}

// execBuiltin checks exec, which runs a program if it has arguments, never a function.
func (w *walker) execBuiltin(words []word) *refusal {
	if len(words) == 1 {
		return nil
	}
	return w.checkProgram(words[1:])
}

// commandBuiltin checks command, which ignores functions. With -v and -V it runs nothing.
func (w *walker) commandBuiltin(words []word) *refusal {
	if len(words) == 1 || words[1].is("-v") || words[1].is("-V") {
		return nil
	}
	rest := words[1:]
	if !rest[0].known || rest[0].derived || strings.HasPrefix(rest[0].text, "-") {
		return refuse(rest[0], "the name of the command "+quote(rest[0].source)+" is an option, or only known at run time", "write the name itself")
	}
	return w.checkBuiltin(rest)
}

func (w *walker) jobsBuiltin(words []word) *refusal {
	for _, arg := range words[1:] {
		if !arg.is("-l") && !arg.is("-p") && !arg.is("-r") && !arg.is("-s") {
			return refuse(arg, "the argument "+quote(arg.source)+" of jobs can run a command", "use jobs with -l, -p, -r or -s")
		}
	}
	return nil
}

// printfBuiltin requires a format that is known: %n in it sets a variable.
func (w *walker) printfBuiltin(words []word) *refusal {
	args := words[1:]
	if len(args) > 1 && args[0].is("-v") {
		if refused := w.assignedNames(args[1:2]); refused != nil {
			return refused
		}
		args = args[2:]
	} else if len(args) > 0 && args[0].is("--") {
		args = args[1:]
	}
	if len(args) == 0 {
		return nil
	}
	format := args[0]
	switch {
	case !format.known || format.derived || strings.HasPrefix(format.text, "-"):
		return refuse(format, "the format "+quote(format.source)+" of printf is an option, or only known at run time", "use printf '%s\\n' \"$name\"")
	case setsVariable(format.text):
		return refuse(format, "%n in the format of printf sets a variable", "leave it out")
	}
	return nil
}

// setsVariable reports whether a format may hold the conversion %n.
func setsVariable(format string) bool {
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		for i++; i < len(format) && strings.IndexByte(" #+-0123456789.*'hlLqjzt", format[i]) >= 0; i++ {
		}
		if i < len(format) && format[i] == 'n' {
			return true
		}
	}
	return false
}

// assignedNames checks the names of variables that a builtin assigns.
func (w *walker) assignedNames(names []word) *refusal {
	for _, name := range names {
		if !name.known || name.derived || !isName(name.text) {
			return refuse(name, "a builtin would evaluate "+quote(name.source)+" as the name of a variable", "write a plain name, without a subscript")
		}
		what := w.policy.notAssignable(name.text)
		if w.kind == scriptOfTrap {
			what = "a trap may change at any time"
		}
		if what != "" {
			return refuse(name, "the script assigns the variable "+quote(name.text)+", which "+what, "don't assign it, or choose another name")
		}
	}
	return nil
}

func (w *walker) readBuiltin(words []word) *refusal {
	options, names, refused := splitOptions(words, optionSet{flags: "rs", values: "dnNptua", names: "a"})
	return firstRefusal(refused, w.assignedNames(options), w.assignedNames(names))
}

func (w *walker) unsetBuiltin(words []word) *refusal {
	for _, name := range words[1:] {
		if w.functions[name.text] {
			return refuse(name, "unset may remove the function "+quote(name.text)+", after which its name would mean a program", "don't unset it")
		}
	}
	return w.assignedNames(words[1:])
}

func (w *walker) getoptsBuiltin(words []word) *refusal {
	if len(words) < 3 {
		return nil
	}
	if words[1].many || words[1].mayBeOption() {
		return refuse(words[1], quote(words[1].source)+" may expand to an option of getopts", "write the letters themselves")
	}
	return w.assignedNames(words[2:3])
}

// waitBuiltin refuses what may be the option -p, which evaluates a name.
func (w *walker) waitBuiltin(words []word) *refusal {
	for _, arg := range words[1:] {
		name := strings.Trim(arg.source, "\"${}")
		isNumber := arg.known && isDecimal(arg.text) || strings.HasPrefix(strings.TrimPrefix(arg.source, "\""), "$") && (name == "!" || w.isNumeric(name))
		if !arg.is("-n") && !arg.is("-f") && !isNumber {
			return refuse(arg, quote(arg.source)+" may expand to the option -p of wait, which evaluates a name", "use wait, wait $! or a variable that was set to $!")
		}
	}
	return nil
}
