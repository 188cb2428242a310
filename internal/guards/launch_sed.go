package guards

import "strings"

// checkSed parses the options of sed and checks its script.
func checkSed(_ *checker, words []word) *refusal {
	s := &sedOptions{}
	for i := 1; i < len(words); i++ {
		arg := words[i]
		before := len(s.scripts)
		taken, refused := s.option(words, i)
		s.late = s.late || len(s.scripts) > before && len(s.operands) > 0
		switch {
		case refused != nil:
			return refused
		case taken < 0:
			s.operands = append(s.operands, words[i+1:]...)
			i = len(words)
		case taken > 0:
			i += taken - 1
		default:
			s.operands = append(s.operands, arg)
		}
	}
	if len(s.scripts) == 0 && len(s.operands) > 0 {
		s.scripts = s.operands[:1]
	}
	return s.check()
}

// sedOptions are the words of a sed command by their meaning.
type sedOptions struct {
	scripts  []word
	operands []word
	late     bool // a script by an option came after an operand
}

// option returns how many words the option at i takes: 0 when it is an operand, -1 for "--".
func (s *sedOptions) option(words []word, i int) (int, *refusal) {
	arg := words[i]
	switch {
	case arg.is("--"):
		return -1, nil
	case arg.is("--quiet"), arg.is("--silent"), arg.is("--regexp-extended"), arg.is("--in-place"), arg.is("--separate"),
		arg.is("--unbuffered"), arg.is("--null-data"), arg.is("--posix"), arg.is("--debug"), arg.is("--sandbox"),
		arg.known && strings.HasPrefix(arg.text, "--in-place="):
		return 1, nil
	case arg.is("--expression"):
		return s.script(words, i+1, 2)
	case arg.known && strings.HasPrefix(arg.text, "--expression="):
		arg.text = strings.TrimPrefix(arg.text, "--expression=")
		s.scripts = append(s.scripts, arg)
		return 1, nil
	case arg.known && len(arg.text) > 1 && arg.text[0] == '-' && arg.text[1] != '-':
		return s.cluster(words, i)
	case arg.mayBeOption(), arg.many && !arg.isCertain():
		return 0, refuse(arg, quote(arg.source)+" may expand to an option that makes sed run commands", "put ./ before it, or write it out")
	}
	return 0, nil
}

func (s *sedOptions) script(words []word, i, taken int) (int, *refusal) {
	if i < len(words) {
		s.scripts = append(s.scripts, words[i])
	}
	return taken, nil
}

func (s *sedOptions) cluster(words []word, i int) (int, *refusal) {
	arg := words[i]
	for at := 1; at < len(arg.text); at++ {
		switch arg.text[at] {
		case 'n', 'E', 'r', 's', 'u', 'z':
		case 'i':
			return 1, nil
		case 'e':
			if at+1 == len(arg.text) {
				return s.script(words, i+1, 2)
			}
			arg.text = arg.text[at+1:]
			s.scripts = append(s.scripts, arg)
			return 1, nil
		default:
			return 0, refuse(arg, "the option "+quote(arg.source)+" of sed is not known to be harmless, or reads a script from a file", "give the script as a text")
		}
	}
	return 1, nil
}

func (s *sedOptions) check() *refusal {
	if s.late {
		return refuse(s.operands[0], "some versions of sed take "+quote(s.operands[0].source)+" for the script", "put options first")
	}
	if len(s.scripts) == 0 {
		return nil
	}
	texts := make([]string, len(s.scripts))
	for i, script := range s.scripts {
		if !script.known || script.derived {
			return refuse(script, "the script "+quote(script.source)+" of sed is only known at run time", "put it in single quotes")
		}
		texts[i] = script.text
	}
	script := strings.Join(texts, "\n")
	if what := sedRuns(script); what != "" {
		return refuse(s.scripts[0], "the script of sed "+what, "use plain s, p, d and y commands")
	}
	return nil
}

// sedRuns says why a script is refused. Versions of sed disagree on whether a delimiter within [...] ends a pattern, so
// the script must pass in both readings. In the less common one it may also be invalid, as nothing runs then.
func sedRuns(script string) string {
	reader := &sedReader{text: script, brackets: true}
	if what := reader.run(); what != "" {
		return what
	}
	reader = &sedReader{text: script}
	if what := reader.run(); what != sedInvalid {
		return what
	}
	return ""
}

// sedReader parses a script. It refuses what it doesn't know.
type sedReader struct {
	text     string
	at       int
	brackets bool // a delimiter within [...] doesn't end a pattern
	// unclosed are the kinds of classes whose end isn't in the rest of the text; looked counts the bytes of such searches.
	unclosed string
	looked   int
}

// run returns why the script is refused, or nothing.
func (r *sedReader) run() string {
	for r.at < len(r.text) {
		r.skip(" \t\n;{}")
		if r.at >= len(r.text) {
			break
		}
		if what := r.command(); what != "" {
			return what
		}
	}
	return ""
}

func (r *sedReader) skip(set string) {
	for r.at < len(r.text) && strings.IndexByte(set, r.text[r.at]) >= 0 {
		r.at++
	}
}

func (r *sedReader) line() {
	if size := strings.IndexByte(r.text[r.at:], '\n'); size >= 0 {
		r.at += size
		return
	}
	r.at = len(r.text)
}

const (
	sedUnclear = "can't be checked"
	sedInvalid = "is not valid"
)

func (r *sedReader) command() string {
	if what := r.addresses(); what != "" {
		return what
	}
	r.skip(" \t!")
	if r.at >= len(r.text) {
		return sedUnclear
	}
	c := r.text[r.at]
	r.at++
	switch {
	case strings.IndexByte("{}=dDgGhHnNpPxFz", c) >= 0:
		return ""
	case strings.IndexByte("lLqQ", c) >= 0:
		r.skip(" \t0123456789")
		return ""
	case strings.IndexByte(":btT", c) >= 0:
		return r.label()
	case strings.IndexByte("rRwW#", c) >= 0:
		r.line()
		return ""
	case c == 'a' || c == 'i' || c == 'c':
		r.insertedText()
		return ""
	case c == 's':
		return r.substitute()
	case c == 'y':
		// The parts of y are lists of characters, in which brackets mean nothing.
		brackets := r.brackets
		r.brackets = false
		defer func() { r.brackets = brackets }()
		return r.delimited(2)
	case c == 'e':
		return "runs commands by e"
	default:
		return sedUnclear
	}
}

// addresses reads none, one or two addresses.
func (r *sedReader) addresses() string {
	for r.at < len(r.text) {
		switch c := r.text[r.at]; {
		case isDigit(c) || strings.IndexByte("$,+~ \t", c) >= 0:
			r.at++
		case c == '/' || c == '\\':
			if c == '\\' {
				r.at++
			}
			if what := r.delimited(1); what != "" {
				return what
			}
			r.skip("IM")
		default:
			return ""
		}
	}
	return ""
}

// delimited reads parts of a command. The first character is the delimiter that ends each of them.
func (r *sedReader) delimited(parts int) string {
	if r.at >= len(r.text) {
		return sedUnclear
	}
	delimiter := r.text[r.at]
	if delimiter == '\n' || delimiter == '\\' || delimiter >= 0x80 {
		return sedUnclear
	}
	r.at++
	for part := range parts {
		for r.at < len(r.text) && r.text[r.at] != delimiter {
			switch {
			case r.text[r.at] == '\\':
				r.at += 2
			case r.text[r.at] == '[' && part == 0 && r.brackets:
				r.bracket()
			default:
				r.at++
			}
		}
		if r.at >= len(r.text) {
			return sedUnclear
		}
		r.at++
	}
	return ""
}

// bracket skips an expression in brackets. If it is unclear where the expression ends, it skips the whole text, which
// makes the script invalid.
func (r *sedReader) bracket() {
	r.at++
	r.skipOnce('^')
	r.skipOnce(']')
	for r.at < len(r.text) && r.text[r.at] != ']' {
		if r.class() {
			continue
		}
		if strings.HasPrefix(r.text[r.at:], "\\]") {
			r.at = len(r.text)
			return
		}
		r.at++
	}
	r.at = min(r.at+1, len(r.text))
}

func (r *sedReader) skipOnce(c byte) {
	if r.at < len(r.text) && r.text[r.at] == c {
		r.at++
	}
}

// class skips a class like [:alpha:], and reports whether there was one.
func (r *sedReader) class() bool {
	text := r.text[r.at:]
	if len(text) < 4 || text[0] != '[' || strings.IndexByte(":.=", text[1]) < 0 || strings.IndexByte(r.unclosed, text[1]) >= 0 {
		return false
	}
	end := strings.Index(text[2:], text[1:2]+"]")
	if end < 0 {
		r.unclosed += text[1:2]
		r.looked += len(text)
		return false
	}
	r.looked += end
	r.at += end + 4
	return true
}

func (r *sedReader) substitute() string {
	if what := r.delimited(2); what != "" {
		return what
	}
	for r.at < len(r.text) {
		c := r.text[r.at]
		switch {
		case isDigit(c) || strings.IndexByte("gpiImM", c) >= 0:
			r.at++
		case c == 'w':
			r.line()
			return ""
		case c == 'e':
			return "runs commands by the flag e of s"
		case strings.IndexByte(" \t\n;}#", c) >= 0:
			return ""
		default:
			return sedInvalid
		}
	}
	return ""
}

// label reads the name of a label. Versions of sed disagree on where it ends, so it must be plain.
func (r *sedReader) label() string {
	r.skip(" \t")
	for r.at < len(r.text) && isWordByte(r.text[r.at]) {
		r.at++
	}
	if r.at < len(r.text) && strings.IndexByte("\n;", r.text[r.at]) < 0 && r.text[r.at] != '}' {
		return sedUnclear
	}
	return ""
}

// insertedText reads the text of a, i and c: up to the end of a line that no backslash continues.
func (r *sedReader) insertedText() {
	for r.at < len(r.text) {
		if r.text[r.at] == '\\' {
			r.at += 2
			continue
		}
		if r.text[r.at] == '\n' {
			return
		}
		r.at++
	}
	r.at = min(r.at, len(r.text))
}
