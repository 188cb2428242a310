package initialize

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"toolcall.dev/operator/api/v1alpha1"
)

// Bounds of --approve: each phrase becomes a rule, whose estimated cost has to be below that of the API server.
const (
	maxPhrases = 16
	maxWords   = 4
)

// phraseWord is a word of a phrase. It has no character with a meaning in CEL's strings or in shells, and none that hides.
var phraseWord = regexp.MustCompile(`^[A-Za-z0-9_.+:/=@-]{1,32}$`)

// plainName matches the name of a command that is written out, also of the test [. In a pattern of CEL.
const plainName = `^([A-Za-z0-9_.+:/=@,%-]+|\[)$`

// readsCommands are the programs that run what they read elsewhere, such as a here-document. In a pattern of CEL.
const readsCommands = `^(.*/)?(bash|sh|python3|perl|ruby|node|xargs|eval|source|[.])$`

// phrase is a program with arguments that a call has to name, in any order, so that a person decides about it.
type phrase struct {
	program string
	args    []string
}

func (p phrase) String() string { return strings.Join(append([]string{p.program}, p.args...), " ") }

func phrasesOf(texts []string, tools *toolset) (list []phrase, err error) {
	if len(texts) > maxPhrases {
		return nil, fmt.Errorf("--approve: %d phrases are too many: use at most %d", len(texts), maxPhrases)
	}
	for _, text := range texts {
		words := strings.Fields(text)
		if len(words) == 0 || len(words) > maxWords || slices.ContainsFunc(words, func(w string) bool { return !phraseWord.MatchString(w) }) {
			return nil, fmt.Errorf("--approve %q: give a program and arguments as plain words, at most %d of at most 32 characters, like 'git push'", text, maxWords)
		}
		p := phrase{program: words[0], args: words[1:]}
		if program, ok := interpreters[p.program]; ok && slices.Contains(tools.languages, p.program) && !slices.Contains(tools.programs, p.program) {
			return nil, fmt.Errorf("--approve %q: the program that runs %s is called %s: write that", text, p.program, program)
		}
		if !slices.Contains(tools.programs, p.program) {
			return nil, fmt.Errorf("--approve %q: the agent has no tool %q, so such calls are denied: name one of %s, or add it to --tools", text, p.program, strings.Join(tools.programs, ", "))
		}
		if slices.ContainsFunc(list, func(q phrase) bool { return q.String() == p.String() }) {
			return nil, fmt.Errorf("--approve %q is given twice", text)
		}
		list = append(list, p)
	}
	return list, nil
}

// rule has a person decide about calls that name the phrase.
func (p phrase) rule(name string) v1alpha1.PolicyRule {
	return v1alpha1.PolicyRule{
		Name: name, Effect: v1alpha1.RuleRequireApproval, Message: fmt.Sprintf("A person approves %q.", p.String()), Expression: p.expression(),
	}
}

// expression is true for commands that name the program, or another program that starts it, with all arguments; for commands of which not
// every word is written out and that could be such a command; and for a text within which the words stand: an argument, code, or the
// script or standard input of a call that starts a shell or an interpreter.
func (p phrase) expression() string {
	named := fmt.Sprintf(`(c.name == %[1]s || c.name.endsWith(%[2]s) || c.args.exists(a, a == %[1]s || a.endsWith(%[2]s)))`, strconv.Quote(p.program), strconv.Quote("/"+p.program))
	hidden := "!c.literal && !c.name.matches(" + strconv.Quote(plainName) + ")"
	whole := named
	if len(p.args) > 0 {
		with := p.each(p.args, func(word string) string {
			return fmt.Sprintf("c.args.exists(a, a == %s || a.endsWith(%s))", strconv.Quote(word), strconv.Quote("="+word))
		})
		whole = named + " && (!c.literal || " + with + ")"
		hidden = "!c.literal && (!c.name.matches(" + strconv.Quote(plainName) + ") || " + with + ")"
	}
	within := func(text string) string {
		return p.each(append([]string{p.program}, p.args...), func(word string) string { return text + ".contains(" + strconv.Quote(word) + ")" })
	}
	read := "action.commands.exists(c, c.name.matches(" + strconv.Quote(readsCommands) + ")) && (" + within("action.command") +
		" || has(call.spec.stdin) && " + within("call.spec.stdin") + ")"
	return "action.commands.exists(c, " + whole + " || " + hidden + " || c.args.exists(a, " + within("a") + ")) || " + within("action.source") + " || " + read
}

// each joins a condition about each word.
func (p phrase) each(words []string, condition func(word string) string) string {
	var all []string
	for _, word := range words {
		all = append(all, condition(word))
	}
	return strings.Join(all, " && ")
}
