package guards

import (
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// launchRule describes programs that can start other programs.
type launchRule struct {
	// names are the programs, without version numbers.
	names string
	// reason completes the sentence "the program …".
	reason string
	check  launchCheck
	// interpreter says that the program runs code, which guards don't judge: whoever lists it lists what it can do.
	interpreter bool
}

// launchCheck checks the words of a command, the first of which is the name of the program.
type launchCheck func(*checker, []word) *refusal

// launchTable finds the rule for a program.
type launchTable struct {
	rules map[string]*launchRule
}

func newLaunchTable() *launchTable {
	table := &launchTable{rules: map[string]*launchRule{}}
	for _, rule := range launchRules() {
		for name := range strings.FieldsSeq(rule.names) {
			table.rules[name] = &rule
		}
	}
	return table
}

// find looks up the rule by the name of the program, then by its name without a version: python3.11 is python.
func (t *launchTable) find(name string) *launchRule {
	if rule := t.rules[name]; rule != nil {
		return rule
	}
	if _, cross, ok := strings.Cut(name, "-linux-gnu-"); ok {
		name = cross
	}
	if strings.HasPrefix(name, "ld-linux") || strings.HasPrefix(name, "ld-musl") {
		return t.rules["ld.so"]
	}
	if strings.HasPrefix(name, "systemd-") {
		return t.rules["systemd-run"]
	}
	for {
		if rule := t.rules[name]; rule != nil {
			return rule
		}
		shorter := strings.TrimRight(strings.TrimRight(name, "0123456789"), ".-_")
		if shorter == name || shorter == "" {
			return nil
		}
		name = shorter
	}
}

// checkProgram checks the name of a program and, if the program can start others, what it starts.
func (c *checker) checkProgram(words []word) *refusal {
	name := words[0]
	switch {
	case !name.known || name.derived:
		return refuse(name, "the name of the program "+quote(name.source)+" is only known at run time", "write the name itself")
	case strings.Contains(name.text, "/") && (c.policy.binaries.allowsAny() || !c.policy.binaries.allows(name.text)):
		return refuse(name, "the program "+quote(name.text)+" is given by a path that binaries.allowed doesn't list", "use its bare name, which must be listed in binaries.allowed, or have its absolute path listed")
	case !c.policy.binaries.allows(name.text) || name.text == "":
		return refuse(name, "the program "+quote(name.text)+" is not listed in binaries.allowed", "use one of "+joinNames(c.policy.binaries.names))
	}
	return c.checkLaunched(words)
}

// checkLaunched checks what an allowed program starts.
func (c *checker) checkLaunched(words []word) *refusal {
	rule := c.policy.launchers.find(path.Base(words[0].text))
	if rule == nil || isHelp(words) {
		return nil
	}
	refused := c.nested(words[0], func() *refusal { return rule.check(c, words) })
	if refused != nil && refused.line == 0 {
		refused.line, refused.col = words[0].line, words[0].column
	}
	return refused
}

// isHelp reports whether the command only asks a program for its version or its help.
func isHelp(words []word) bool {
	return len(words) == 2 && (words[1].is("--version") || words[1].is("--help")) && !words[0].is("git") && !words[0].is("man")
}

// opaque refuses a program whose arguments don't say what it runs.
func opaque(reason, fix string) launchCheck {
	return func(c *checker, words []word) *refusal {
		if c.policy.binaries.allowsAny() {
			return nil
		}
		return refuse(words[0], quote(words[0].text)+" "+reason+", and its arguments don't show which programs", fix)
	}
}

// prefix checks a launcher that takes options, then a number of operands, then a command.
func prefix(set optionSet, operands int) launchCheck {
	return func(c *checker, words []word) *refusal {
		_, rest, refused := splitOptions(words, set)
		if refused != nil {
			return refused
		}
		for range operands {
			if len(rest) == 0 {
				return nil
			}
			if rest[0].many {
				return refuse(rest[0], quote(rest[0].source)+" may expand to several words, of which "+quote(words[0].text)+" would run one", "put it in double quotes")
			}
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return nil
		}
		return c.checkProgram(rest)
	}
}

// checkEnvProgram checks env, which takes assignments between its options and the command.
func checkEnvProgram(c *checker, words []word) *refusal {
	unset, rest, refused := splitOptions(words, optionSet{
		flags: "i0v", values: "uC", names: "u",
		long: "ignore-environment null chdir= debug block-signal? default-signal? ignore-signal? list-signal-handling",
	})
	if refused != nil {
		return refused
	}
	c.homeSet = true
	for _, name := range unset {
		if !name.known || c.policy.protectedName(name.text) {
			return refuse(name, "env unsets the variable "+quote(name.source)+", which is protected because it can change which program runs", "leave it out")
		}
	}
	if len(rest) > 0 && rest[0].is("-") {
		rest = rest[1:]
	}
	for len(rest) > 0 {
		name, _, assigned := strings.Cut(rest[0].text, "=")
		if !assigned {
			return c.checkProgram(rest)
		}
		switch {
		case !isName(name) || rest[0].many:
			return refuse(rest[0], "env sets "+quote(rest[0].source)+", which is not an assignment to a plain variable", "write it as name=value")
		case c.policy.protectedName(name):
			return refuse(rest[0], "env sets the variable "+name+", which is protected because it can change which program runs", "leave it out")
		}
		rest = rest[1:]
	}
	return nil
}

// checkXargs checks xargs. The words that it reads are added to the command as arguments, or replace a marker. Of -I, -L
// and -n the last one counts, so only one of them may be given.
func checkXargs(c *checker, words []word) *refusal {
	markers, rest, refused := splitOptions(words, optionSet{
		flags: "0rtpxo", values: "adEILnPs", optional: "e", names: "I",
		long: "null arg-file= delimiter= eof? max-args= max-procs= interactive no-run-if-empty max-chars= verbose exit open-tty show-limits",
	})
	if refused != nil {
		return refused
	}
	if len(markers) > 1 || len(markers) == 1 && xargsCounts(words[1:len(words)-len(rest)]) {
		return refuse(words[0], "versions of xargs disagree on which of -I, -L and -n counts", "give one of them only")
	}
	command := append([]word{}, rest...)
	if len(command) == 0 {
		command = append(command, word{text: "echo", known: true, source: "echo", line: words[0].line, column: words[0].column})
	}
	if len(markers) == 0 {
		return c.checkProgram(append(command, word{many: true, source: "what xargs reads", line: words[0].line, column: words[0].column}))
	}
	for _, marker := range markers {
		if !marker.known || marker.text == "" {
			return refuse(marker, "the text that xargs replaces is only known at run time", "use xargs -I {}")
		}
		if refused := c.spend(marker, len(command)); refused != nil {
			return refused
		}
		replaceMarker(command, marker.text, "")
	}
	return c.checkProgram(command)
}

// xargsCounts reports whether options of xargs beside -I may say how many words each command gets.
func xargsCounts(options []word) bool {
	for _, option := range options {
		if strings.HasPrefix(option.text, "--max-a") || len(option.text) > 1 && option.text[0] == '-' && option.text[1] != '-' && strings.ContainsAny(option.text, "Ln") && !strings.HasPrefix(option.text, "-I") {
			return true
		}
	}
	return false
}

// replaceMarker makes the rest of each word unknown that contains the marker. What replaces the marker begins with start.
func replaceMarker(command []word, marker, start string) {
	for i := range command {
		before, _, found := strings.Cut(command[i].text, marker)
		if found {
			command[i].text, command[i].known, command[i].derived = before+start, false, false
		}
	}
}

// checkShell checks a shell that runs a script by -c. It refuses scripts from files and from standard input.
func checkShell(langs ...syntax.LangVariant) launchCheck {
	return func(c *checker, words []word) *refusal {
		command, refused := shellCommand(words)
		if refused != nil {
			return refused
		}
		if !command.known || command.derived {
			return refuse(command, "the script "+quote(command.source)+" of "+words[0].text+" -c is only known at run time", "write the script itself, in single quotes")
		}
		for _, lang := range langs {
			if refused := c.innerScript(command.text, lang); refused != nil {
				refused.what = "in the script of " + words[0].text + " -c: " + refused.what
				return refused.withPosition(command)
			}
		}
		return nil
	}
}

// shellCommand finds the script among a shell's words.
func shellCommand(words []word) (word, *refusal) {
	i, isCommand := shellFlags(words)
	if i < len(words) && isCommand && words[i].is("--") {
		i++
	} else if i < len(words) && isCommand && (words[i].mayBeOption() || strings.HasPrefix(words[i].text, "+")) {
		isCommand = false
	}
	switch {
	case i >= len(words):
		return word{}, refuse(words[0], words[0].text+" without a script runs what it reads from its input, which can't be checked", "use "+words[0].text+" -c 'commands'")
	case !isCommand || words[i].many:
		return word{}, refuse(words[i], words[0].text+" with "+quote(words[i].source)+" runs a script that can't be checked, or reads startup files", "use "+words[0].text+" -c 'commands'")
	}
	return words[i], nil
}

// shellFlags skips flags that only make a shell stop or report earlier. It returns the position of the first other word,
// and whether -c was among the flags.
func shellFlags(words []word) (i int, isCommand bool) {
	for i = 1; i < len(words); i++ {
		arg := words[i]
		if arg.is("--norc") || arg.is("--noprofile") {
			continue
		}
		letters, isFlags := strings.CutPrefix(arg.text, "-")
		if !arg.known || !isFlags || letters == "" || strings.Trim(letters, "ceufxo") != "" {
			return i, isCommand
		}
		isCommand = isCommand || strings.Contains(letters, "c")
		for range strings.Count(letters, "o") {
			if i++; i >= len(words) || !words[i].known || !harmlessSetOption(words[i].text) {
				return min(i, len(words)), false
			}
		}
	}
	return i, isCommand
}
