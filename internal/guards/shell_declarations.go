package guards

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// declClause checks export, readonly, local and declare where bash takes their arguments for assignments.
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

// declOptions checks the options of a declaration and returns their letters.
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
		return refuse(option, "the option "+quote(option.text)+" of "+variant.text+" changes what a name means, or can't be checked", "leave it out")
	}
	return nil
}

// declWord checks an argument of a declaration that isn't an assignment: an option, or quoted text.
func (w *walker) declWord(arg, variant word, flags string) *refusal {
	if arg.known && (strings.HasPrefix(arg.text, "-") || strings.HasPrefix(arg.text, "+")) {
		return declLetters(arg, variant)
	}
	name, value, assigned := strings.Cut(arg.text, "=")
	name = strings.TrimSuffix(name, "+")
	switch {
	case !isName(name) || arg.many || arg.derived || !arg.known && !assigned:
		return refuse(arg, variant.text+" would evaluate "+quote(arg.source)+" as the name of a variable", "write the name itself, as in "+variant.text+" name=\"$value\"")
	case w.policy.protectedName(name) || name == "RANDOM" && assigned:
		return refuse(arg, "the script assigns the variable "+name+", which is protected because it can change which program runs", "don't assign it")
	case assigned && w.mayBeArray(name, flags) && (value == "" || value[0] == '('), strings.Contains(flags, "i"):
		return refuse(arg, "bash evaluates the text that "+variant.text+" gives to "+quote(name), "write it without quotes around the name")
	}
	return nil
}
