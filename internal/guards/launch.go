package guards

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// launchRule says how programs that can start other programs are judged.
type launchRule struct {
	// names are the programs, without version numbers.
	names string
	// reason completes the sentence "the program …".
	reason string
	judge  launchJudge
}

// launchJudge decides by a program's words, the first of which is its name.
type launchJudge func(*judge, []word) *refusal

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

// find looks a program up by its name, then by its name without a version: python3.11 is python.
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

// program judges a program by its name and, if it can start others, by what it starts.
func (j *judge) program(words []word) *refusal {
	name := words[0]
	switch {
	case !name.known || name.derived:
		return refuse(name, "the name of the program "+quote(name.source)+" is only known at run time", "write the name itself")
	case strings.Contains(name.text, "/"):
		return refuse(name, "the program "+quote(name.text)+" is given by a path", "use its bare name, which must be listed in binaries.allowed")
	case !j.policy.binaries.allows(name.text) || name.text == "":
		return refuse(name, "the program "+quote(name.text)+" is not listed in binaries.allowed", "use one of "+listed(j.policy.binaries.names))
	}
	return j.launched(words)
}

// launched judges what a program that may run starts itself.
func (j *judge) launched(words []word) *refusal {
	rule := j.policy.launchers.find(words[0].text)
	if rule == nil || isHelp(words) {
		return nil
	}
	refused := j.nested(words[0], func() *refusal { return rule.judge(j, words) })
	if refused != nil && refused.line == 0 {
		refused.line, refused.col = words[0].line, words[0].column
	}
	return refused
}

// isHelp says whether a program is only asked about itself.
func isHelp(words []word) bool {
	return len(words) == 2 && (words[1].is("--version") || words[1].is("--help")) && !words[0].is("git") && !words[0].is("man")
}

// opaque refuses a program whose arguments don't say what it runs.
func opaque(reason, fix string) launchJudge {
	return func(j *judge, words []word) *refusal {
		if j.policy.binaries.any() {
			return nil
		}
		return refuse(words[0], quote(words[0].text)+" "+reason+", which can't be read from its arguments", fix)
	}
}

// prefix judges a launcher with options, then a number of operands, then the command.
func prefix(set optionSet, operands int) launchJudge {
	return func(j *judge, words []word) *refusal {
		_, rest, refused := splitOptions(words, set)
		if refused != nil {
			return refused
		}
		for range operands {
			if len(rest) == 0 {
				return nil
			}
			if rest[0].many {
				return refuse(rest[0], "what "+quote(rest[0].source)+" expands to may be several words, of which "+quote(words[0].text)+" would run one", "put it in double quotes")
			}
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return nil
		}
		return j.program(rest)
	}
}

// judgeEnv judges env: variables stand between its options and the command.
func judgeEnv(j *judge, words []word) *refusal {
	unset, rest, refused := splitOptions(words, optionSet{
		flags: "i0v", values: "uC", names: "u",
		long: "ignore-environment null chdir= debug block-signal? default-signal? ignore-signal? list-signal-handling",
	})
	if refused != nil {
		return refused
	}
	j.homeSet = true
	for _, name := range unset {
		if !name.known || j.policy.protectedName(name.text) {
			return refuse(name, "env would remove the variable "+quote(name.source)+", which decides what runs", "leave it as it is")
		}
	}
	if len(rest) > 0 && rest[0].is("-") {
		rest = rest[1:]
	}
	for len(rest) > 0 {
		name, _, assigned := strings.Cut(rest[0].text, "=")
		if !assigned {
			return j.program(rest)
		}
		switch {
		case !isName(name) || rest[0].many:
			return refuse(rest[0], "env would set "+quote(rest[0].source)+", which is no plain variable", "write it as name=value")
		case j.policy.protectedName(name):
			return refuse(rest[0], "env would set the variable "+name+", which protectedEnv or the shell keeps because it can make another program run", "leave it out")
		}
		rest = rest[1:]
	}
	return nil
}

// judgeXargs judges xargs: the words that it reads come after those of the command, as arguments, or take
// the place of a marker.
func judgeXargs(j *judge, words []word) *refusal {
	markers, rest, refused := splitOptions(words, optionSet{
		flags: "0rtpxo", values: "adEILnPs", optional: "el", names: "I",
		long: "null arg-file= delimiter= eof? max-lines? max-args= max-procs= interactive no-run-if-empty max-chars= verbose exit open-tty show-limits",
	})
	if refused != nil {
		return refused
	}
	command := append([]word{}, rest...)
	if len(command) == 0 {
		command = append(command, word{text: "echo", known: true, source: "echo", line: words[0].line, column: words[0].column})
	}
	if len(markers) == 0 {
		return j.program(append(command, word{many: true, source: "what xargs reads", line: words[0].line, column: words[0].column}))
	}
	for _, marker := range markers {
		if !marker.known || marker.text == "" {
			return refuse(marker, "the text that xargs replaces is only known at run time", "use xargs -I {}")
		}
		if refused := j.spend(marker, len(command)); refused != nil {
			return refused
		}
		replaceMarker(command, marker.text)
	}
	return j.program(command)
}

// replaceMarker makes what follows the marker in each word unknown.
func replaceMarker(command []word, marker string) {
	for i := range command {
		before, _, found := strings.Cut(command[i].text, marker)
		if found {
			command[i].text, command[i].known, command[i].derived = before, false, false
		}
	}
}

// judgeShell judges a shell that gets a script by -c. A script from a file or from standard input is refused.
func judgeShell(langs ...syntax.LangVariant) launchJudge {
	return func(j *judge, words []word) *refusal {
		command, refused := shellCommand(words)
		if refused != nil {
			return refused
		}
		if !command.known || command.derived {
			return refuse(command, "the script "+quote(command.source)+" of "+words[0].text+" -c is only known at run time", "write the script itself, in single quotes")
		}
		for _, lang := range langs {
			if refused := j.script(command.text, lang); refused != nil {
				refused.what = "in the script of " + words[0].text + " -c: " + refused.what
				return refused.placed(command)
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
		return word{}, refuse(words[0], words[0].text+" without a script runs what it reads from its input, which can't be judged", "use "+words[0].text+" -c 'commands'")
	case !isCommand || words[i].many:
		return word{}, refuse(words[i], words[0].text+" with "+quote(words[i].source)+" runs a script that can't be judged, or reads startup files", "use "+words[0].text+" -c 'commands'")
	}
	return words[i], nil
}

// shellFlags passes the flags that only make a shell stop or report earlier. It returns the position of the
// first other word, and whether -c was among them.
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
