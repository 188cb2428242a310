package guards

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// call judges a simple command: its assignments, what its words expand, and what its name means.
func (w *walker) call(cmd *syntax.CallExpr) *refusal {
	for _, assign := range cmd.Assigns {
		if refused := w.assignment(assign, ""); refused != nil {
			return refused
		}
	}
	if refused := w.words(cmd.Args); refused != nil {
		return refused
	}
	if len(cmd.Args) == 0 {
		w.defineAssigned(cmd.Assigns)
		return nil
	}
	words := make([]word, len(cmd.Args))
	for i, arg := range cmd.Args {
		words[i] = w.read(arg)
	}
	return w.run(words, cmd)
}

// defineAssigned notes the variables that a statement of assignments alone sets.
func (w *walker) defineAssigned(assigns []*syntax.Assign) {
	for _, assign := range assigns {
		if assign.Name == nil || assign.Index != nil || assign.Append || assign.Naked {
			continue
		}
		w.scope.define(variableKey(assign.Name.Value), w.plainAssign(assign))
	}
}

// assignment judges an assignment; flags are the letters of the options of a declaration around it.
func (w *walker) assignment(assign *syntax.Assign, flags string) *refusal {
	name := assign.Name.Value
	if refused := w.assignable(assign, name); refused != nil {
		return refused
	}
	if name == "RANDOM" && !(assign.Value != nil && isNumericWord(assign.Value)) {
		return w.refuseAt(assign, "bash evaluates what is assigned to "+name+" as arithmetic", arithmeticFix)
	}
	if isLocaleName(name) && assign.Value != nil && !isASCII(w.source) {
		if value := w.read(assign.Value); !value.known || !plainLocale(value.text) {
			return w.refuseAt(assign, "the locale "+quote(value.source)+" changes how bash reads the rest of the script", "use a locale with UTF-8")
		}
	}
	if assign.Index != nil && !strings.Contains(flags, "A") {
		if refused := w.subscript(assign, name, assign.Index); refused != nil {
			return refused
		}
	}
	if assign.Array != nil {
		return w.array(name, assign.Array)
	}
	return w.word(assign.Value)
}

func (w *walker) array(name string, array *syntax.ArrayExpr) *refusal {
	for _, element := range array.Elems {
		if element.Index != nil {
			if refused := w.subscript(element, name, element.Index); refused != nil {
				return refused
			}
		}
		if refused := w.word(element.Value); refused != nil {
			return refused
		}
	}
	return nil
}

// assignable refuses protected variables, and names that are none.
func (w *walker) assignable(node syntax.Node, name string) *refusal {
	if !isName(name) {
		return w.refuseAt(node, "it assigns to "+quote(w.sourceOf(node))+", whose name is only known at run time", "assign a plain variable")
	}
	if w.policy.protectedName(name) {
		return w.refuseAt(node, "it assigns the variable "+name+", which protectedEnv or bash itself keeps because it can make another program run", "leave it as it is")
	}
	return nil
}

// protectedName says whether a script, or a launcher like env, may not set the variable.
func (p *Policy) protectedName(name string) bool {
	return p.protected.has(name) || p.shellEnv.has(name) || p.launchEnv.has(name)
}

// run judges a command by what its name means to bash: a function, a builtin, or a program.
func (w *walker) run(words []word, cmd *syntax.CallExpr) *refusal {
	name := words[0]
	if !name.known || name.derived {
		return refuse(name, "the name of the command "+quote(name.source)+" is only known at run time", "write the name itself")
	}
	if w.functions[name.text] != nil {
		return w.callFunction(name)
	}
	return w.runBuiltin(words, cmd)
}

// runBuiltin judges a command that is certainly no function.
func (w *walker) runBuiltin(words []word, cmd *syntax.CallExpr) *refusal {
	b, ok := w.policy.shellBuiltins[words[0].text]
	if !ok || (w.lang == syntax.LangPOSIX && !b.posix) {
		return w.program(words)
	}
	if b.judge != nil {
		return b.judge(w, words, cmd)
	}
	if b.plain || b.listable && w.policy.binaries.listed[words[0].text] {
		return nil
	}
	return refuse(words[0], "the builtin "+quote(words[0].text)+" "+b.why, b.fix)
}

// callFunction requires that the function is certainly defined here, and those that it calls. In the body of
// another function that is put off until that one is called.
func (w *walker) callFunction(name word) *refusal {
	called := w.functions[name.text]
	if !w.scope.has(functionKey(name.text)) {
		if w.scope.body == nil {
			return refuse(name, "the function "+quote(name.text)+" is called where it is not certainly defined", "define it before, on a line of its own, outside of other commands")
		}
		w.need(name.text)
		return nil
	}
	return w.callNeeds(name, called)
}

// callNeeds requires what a function needs where it is called.
func (w *walker) callNeeds(name word, called *function) *refusal {
	if called.definedAt == w.needs {
		return nil
	}
	all, refused := w.allNeeds(name, called)
	if refused != nil {
		return refused
	}
	defined := true
	for _, needed := range all {
		if w.scope.has(functionKey(needed)) {
			defined = defined && w.script.names[functionKey(needed)]
			continue
		}
		defined = false
		if w.scope.body == nil {
			return refuse(name, "the function "+quote(name.text)+" calls "+quote(needed)+", which is not certainly defined yet", "define all functions, each on a line of its own, before the first call")
		}
		w.need(needed)
	}
	if defined {
		called.definedAt = w.needs
	}
	return nil
}

// need notes that the function in whose body this is needs another one.
func (w *walker) need(name string) {
	if needs := w.scope.body.needs; !needs[name] {
		needs[name] = true
		w.needs++
	}
}

// allNeeds returns what a function needs, also through those that it needs, in a stable order.
func (w *walker) allNeeds(at word, f *function) ([]string, *refusal) {
	seen := map[string]bool{}
	queue := sortedKeys(f.needs)
	for i := 0; i < len(queue); i++ {
		if !seen[queue[i]] {
			seen[queue[i]] = true
			queue = append(queue, sortedKeys(w.functions[queue[i]].needs)...)
		}
	}
	return sortedKeys(seen), w.spend(at, stepsPerNeed*len(queue))
}

// stepsPerNeed is how much longer looking at a function's need takes than parsing a byte.
const stepsPerNeed = 4

func (w *walker) funcDecl(cmd *syntax.FuncDecl) *refusal {
	if cmd.Name == nil {
		return w.refuseAt(cmd, "a function without a name can't be judged", "name it")
	}
	name := cmd.Name.Value
	f := w.functions[name]
	_, builtin := w.policy.shellBuiltins[name]
	switch {
	case len(w.functions) > maxFunctions:
		return w.refuseAt(cmd, "the script defines too many functions", "split it into several calls")
	case builtin || isReserved(name) || w.policy.binaries.listed[name]:
		return w.refuseAt(cmd, "the function "+quote(name)+" takes the name of a listed program or of a builtin", "choose another name")
	case !isFunctionName(name):
		return w.refuseAt(cmd, "the name of the function "+quote(name)+" is not plain", "use letters, digits, underscores and hyphens")
	case f == nil || f.needs != nil:
		return w.refuseAt(cmd, "the function "+quote(name)+" is defined more than once", "give each function its own name")
	}
	if !isFunctionBody(cmd.Body) {
		return w.refuseAt(cmd, "the body of the function "+quote(name)+" is not a group of its own", "write { … } around it, and nothing after it in the same command")
	}
	f.needs = map[string]bool{}
	outer := w.scope
	w.scope = &scope{up: outer, body: f}
	defer func() { w.scope = outer }()
	if refused := w.statement(cmd.Body); refused != nil {
		return refused
	}
	outer.define(functionKey(name), true)
	return nil
}

// maxFunctions bounds the work of finding out which functions call which.
const maxFunctions = 200

// isFunctionBody says whether a definition ends with its body. After one that is followed by a pipe bash makes
// the definition in a process of its own, while the parser takes the pipe for a part of the body.
func isFunctionBody(body *syntax.Stmt) bool {
	return !body.Negated && !body.Background && isGroup(body)
}

// isGroup says whether the statement is a group in braces or parentheses.
func isGroup(stmt *syntax.Stmt) bool {
	switch stmt.Cmd.(type) {
	case *syntax.Block, *syntax.Subshell:
		return true
	}
	return false
}

// isFunctionName accepts names that bash takes in every mode, so that a definition can't fail.
func isFunctionName(name string) bool {
	return isName(strings.ReplaceAll(name, "-", "_"))
}

func isReserved(name string) bool {
	switch name {
	case "if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while", "until", "do", "done", "in",
		"function", "time", "coproc":
		return true
	}
	return false
}

// declClause judges export, readonly, local and declare in the form that bash reads as assignments.
func (w *walker) declClause(cmd *syntax.DeclClause) *refusal {
	variant := w.read(&syntax.Word{Parts: []syntax.WordPart{cmd.Variant}})
	if refused := w.declVariant(variant); refused != nil {
		return refused
	}
	flags, refused := w.declOptions(cmd, variant)
	if refused != nil {
		return refused
	}
	for _, assign := range cmd.Args {
		if refused := w.declArgument(assign, variant, flags); refused != nil {
			return refused
		}
	}
	w.defineAssigned(cmd.Args)
	return nil
}

func (w *walker) declVariant(variant word) *refusal {
	switch variant.text {
	case "export", "readonly", "local", "declare":
		return nil
	}
	return refuse(variant, "the builtin "+quote(variant.text)+" is not one that scripts may use", "use declare, local or export")
}

func (w *walker) declArgument(assign *syntax.Assign, variant word, flags string) *refusal {
	if assign.Name == nil {
		if refused := w.word(assign.Value); refused != nil {
			return refused
		}
		return w.declWord(w.read(assign.Value), variant, flags)
	}
	name := assign.Name.Value
	if strings.Contains(flags, "A") {
		w.scope.define(keyedKey(name), true)
	}
	if assign.Array == nil && assign.Value != nil && w.mayBeArray(name, flags) {
		if value := w.read(assign.Value); value.mayBe("(") || strings.HasPrefix(value.text, "(") || value.many {
			return w.refuseAt(assign, "bash evaluates the text that "+variant.text+" gives to the array "+quote(name), "assign it as "+name+"=(…)")
		}
	}
	if strings.Contains(flags, "i") {
		if fact := w.facts[name]; fact == nil || fact.text {
			return w.refuseAt(assign, "with -i bash evaluates what is assigned to "+quote(name), arithmeticFix)
		}
	}
	return w.assignment(assign, flags)
}

func (w *walker) mayBeArray(name, flags string) bool {
	fact := w.facts[name]
	return strings.ContainsAny(flags, "aA") || fact != nil && (fact.array || fact.keyed)
}

// declOptions reads the options of a declaration.
func (w *walker) declOptions(cmd *syntax.DeclClause, variant word) (string, *refusal) {
	for _, assign := range cmd.Args {
		if assign.Name != nil || assign.Value == nil {
			continue
		}
		text := w.read(assign.Value)
		if text.known && strings.HasPrefix(text.text, "-") || strings.HasPrefix(text.text, "+") {
			if refused := declLetters(text, variant); refused != nil {
				return "", refused
			}
		}
	}
	return declFlags(cmd), nil
}

func declLetters(option, variant word) *refusal {
	allowed := "-xrgaApFuli"
	if variant.text == "declare" {
		allowed += "f"
	}
	if strings.Trim(option.text[1:], allowed) != "" {
		return refuse(option, "the option "+quote(option.text)+" of "+variant.text+" makes a name mean something else, or can't be judged", "do without it")
	}
	return nil
}

// declWord judges an argument of a declaration that isn't a plain assignment: an option, or quoted text.
func (w *walker) declWord(arg, variant word, flags string) *refusal {
	if arg.known && (strings.HasPrefix(arg.text, "-") || strings.HasPrefix(arg.text, "+")) {
		return declLetters(arg, variant)
	}
	name, value, assigned := strings.Cut(arg.text, "=")
	name = strings.TrimSuffix(name, "+")
	switch {
	case !isName(name) || arg.many || arg.derived || !arg.known && !assigned:
		return refuse(arg, variant.text+" would take a name from "+quote(arg.source), "write the name itself, as in "+variant.text+" name=\"$value\"")
	case w.policy.protectedName(name) || name == "RANDOM" && assigned:
		return refuse(arg, "it assigns the variable "+name+", which protectedEnv or bash itself keeps because it can make another program run", "leave it as it is")
	case assigned && w.mayBeArray(name, flags) && (value == "" || value[0] == '('), strings.Contains(flags, "i"):
		return refuse(arg, "bash evaluates the text that "+variant.text+" gives to "+quote(name), "write it without quotes around the name")
	}
	return nil
}
