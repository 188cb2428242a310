package guards

import "strings"

// optionSet describes the options that a program takes before its operands.
type optionSet struct {
	flags    string // letters without a value
	values   string // letters with a value, attached or as the next word
	optional string // letters with a value that can only be attached
	names    string // letters of values that are names of variables
	long     string // long names; "name=" takes a value, "name?" may have one attached
}

// optionReader parses the options at the start of a list of words.
type optionReader struct {
	set   optionSet
	words []word
	next  int
	named []word
}

// splitOptions splits the words of a command, the first of which is its name, into options and the rest. It also returns
// the values of options that are names of variables. It refuses options that aren't in the set, and words that may
// expand to an option.
func splitOptions(words []word, set optionSet) (named, rest []word, refused *refusal) {
	r := &optionReader{set: set, words: words, next: 1}
	for r.next < len(words) {
		arg := words[r.next]
		if arg.is("--") {
			r.next++
			break
		}
		if arg.is("-") || !arg.mayBeOption() && !arg.many {
			break
		}
		if refused := r.option(arg); refused != nil {
			return nil, nil, refused
		}
	}
	return r.named, words[r.next:], nil
}

func (r *optionReader) option(arg word) *refusal {
	r.next++
	switch {
	case arg.many || len(arg.text) < 2:
		return refuse(arg, quote(arg.source)+" may expand to an option of "+r.words[0].text, "write it out, or put -- or ./ before it")
	case strings.HasPrefix(arg.text, "--"):
		return r.longOption(arg)
	default:
		return r.cluster(arg)
	}
}

func (r *optionReader) unknown(arg word) *refusal {
	return refuse(arg, "the option "+quote(arg.source)+" of "+r.words[0].text+" is not known to be harmless", "leave it out")
}

// value takes the next word as an option's value.
func (r *optionReader) value(arg word) (word, *refusal) {
	if r.next >= len(r.words) {
		return word{}, refuse(arg, "the option "+quote(arg.source)+" of "+r.words[0].text+" lacks its value", "add it")
	}
	value := r.words[r.next]
	r.next++
	if !value.isSingle() {
		return word{}, refuse(value, quote(value.source)+" may expand to several words, only the first of which would be the value of the option of "+r.words[0].text, "put it in double quotes")
	}
	return value, nil
}

func (r *optionReader) longOption(arg word) *refusal {
	name, _, attached := strings.Cut(arg.text[2:], "=")
	if !arg.known && !attached {
		return r.unknown(arg)
	}
	entry := r.longEntry(name)
	switch {
	case entry == "", attached && !strings.ContainsAny(entry, "=?"):
		return r.unknown(arg)
	case !attached && strings.HasSuffix(entry, "="):
		_, refused := r.value(arg)
		return refused
	default:
		return nil
	}
}

// longEntry finds a long option by its name or an abbreviation that only it has.
func (r *optionReader) longEntry(name string) string {
	found := ""
	for entry := range strings.FieldsSeq(r.set.long) {
		full := strings.TrimRight(entry, "=?")
		if full == name {
			return entry
		}
		if name != "" && strings.HasPrefix(full, name) {
			if found != "" {
				return ""
			}
			found = entry
		}
	}
	return found
}

func (r *optionReader) cluster(arg word) *refusal {
	for i := 1; i < len(arg.text); i++ {
		letter := arg.text[i]
		switch {
		case strings.IndexByte(r.set.values, letter) >= 0:
			return r.letterValue(arg, i)
		case strings.IndexByte(r.set.optional, letter) >= 0:
			return nil
		case strings.IndexByte(r.set.flags, letter) < 0:
			return r.unknown(arg)
		}
	}
	if !arg.known {
		return r.unknown(arg)
	}
	return nil
}

// letterValue takes the value of the option letter at position i of a cluster.
func (r *optionReader) letterValue(arg word, i int) *refusal {
	name := strings.IndexByte(r.set.names, arg.text[i]) >= 0
	value := arg
	value.text = arg.text[i+1:]
	if arg.known && value.text == "" {
		next, refused := r.value(arg)
		if refused != nil {
			return refused
		}
		value = next
	}
	if name {
		r.named = append(r.named, value)
	}
	return nil
}
