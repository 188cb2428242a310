package guards

import "strings"

const fixUnknown = "put -- or ./ before it, or write it out"

// deniedOptions describes a program that starts others by some options only. Options may stand anywhere before "--".
type deniedOptions struct {
	long      string // denied long names, in full; abbreviations of them are refused too
	except    string // long names that are options of their own although they abbreviate a denied one
	letters   string // denied letters
	values    string // letters that take a value, attached or as the next word
	flags     string // letters that take none
	longFlags string // long names that take no value
	single    bool   // long names are written with one hyphen
	words     string // denied operands
}

// check refuses options that make a program run another one, and words that may expand to options.
func (d deniedOptions) check(_ *checker, words []word) *refusal {
	return d.scan(words[0].text, words[1:])
}

// scan checks the arguments. It can tell values from options, and what "--" means, as long as it knows for each option
// so far whether the option takes the next word.
func (d deniedOptions) scan(name string, args []word) *refusal {
	aligned, isValue := true, false
	for _, arg := range args {
		if aligned && !isValue && (arg.is("--") || arg.is("--end-of-options")) {
			return nil
		}
		if d.denies(arg) {
			return refuse(arg, "the argument "+quote(arg.source)+" makes "+quote(name)+" run another program", "leave it out")
		}
		if arg.many && !arg.isCertain() || !isValue && !arg.known && arg.mayBeOption() && !d.fixed(arg) {
			return refuse(arg, quote(arg.source)+" may expand to an option that makes "+quote(name)+" run another program", fixUnknown)
		}
		if isValue {
			isValue = false
			continue
		}
		known, takes := d.arity(arg)
		aligned, isValue = aligned && known, aligned && known && takes
	}
	return nil
}

// denies reports whether the word is a denied option or operand.
func (d deniedOptions) denies(arg word) bool {
	return arg.known && hasField(d.words, arg.text) || d.deniesLong(arg) || d.deniesLetter(arg)
}

// fixed reports whether only the value of an unknown word is unknown, as in --name="$x".
func (d deniedOptions) fixed(arg word) bool {
	return !arg.many && strings.HasPrefix(arg.text, "--") && strings.Contains(arg.text, "=")
}

// arity reports whether it is known how many words the argument takes, and whether it takes the next one.
func (d deniedOptions) arity(arg word) (known, takes bool) {
	switch {
	case !arg.mayBeOption():
		return true, false
	case strings.HasPrefix(arg.text, "--") || d.single:
		flag := strings.TrimLeft(arg.text, "-")
		return strings.Contains(flag, "=") || hasField(d.longFlags, flag), false
	}
	for i := 1; i < len(arg.text); i++ {
		if strings.IndexByte(d.values, arg.text[i]) >= 0 {
			return true, i+1 == len(arg.text) && arg.known
		}
		if strings.IndexByte(d.flags, arg.text[i]) < 0 {
			return false, false
		}
	}
	return arg.known, false
}

func (d deniedOptions) deniesLong(arg word) bool {
	name, isLong := strings.CutPrefix(arg.text, "--")
	if !isLong && d.single {
		name, isLong = strings.CutPrefix(arg.text, "-")
	}
	name, _, _ = strings.Cut(name, "=")
	if !isLong || name == "" || hasField(d.except, name) {
		return false
	}
	for denied := range strings.FieldsSeq(d.long) {
		if strings.HasPrefix(denied, name) {
			return true
		}
	}
	return false
}

func (d deniedOptions) deniesLetter(arg word) bool {
	if len(arg.text) < 2 || arg.text[0] != '-' || arg.text[1] == '-' {
		return false
	}
	for i := 1; i < len(arg.text); i++ {
		if strings.IndexByte(d.letters, arg.text[i]) >= 0 {
			return true
		}
		if strings.IndexByte(d.values, arg.text[i]) >= 0 {
			return false
		}
	}
	return false
}
