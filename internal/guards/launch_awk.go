package guards

import "strings"

// checkAwk reads awk's options, then its program.
func checkAwk(_ *checker, words []word) *refusal {
	i := 1
	for i < len(words) {
		arg := words[i]
		switch {
		case arg.is("--"):
			return awkProgram(words, i+1)
		case arg.is("-F") || arg.is("-v"):
			if i+1 < len(words) && !words[i+1].isSingle() {
				return refuse(words[i+1], quote(words[i+1].source)+" may expand to several words, of which awk would run one", "put it in double quotes")
			}
			i += 2
		case !arg.many && len(arg.text) > 2 && (strings.HasPrefix(arg.text, "-F") || strings.HasPrefix(arg.text, "-v")), arg.is("--posix"), arg.is("--sandbox"), arg.is("--re-interval"):
			i++
		case arg.mayBeOption() || arg.many:
			return refuse(arg, "the option "+quote(arg.source)+" of awk can name a program or a file to run", "use -F and -v, and give the program as a text")
		default:
			return awkProgram(words, i)
		}
	}
	return nil
}

// awkProgram checks the text of the program, which must be known. The words after it are files and assignments, not
// options.
func awkProgram(words []word, i int) *refusal {
	if i >= len(words) {
		return nil
	}
	program := words[i]
	if !program.known || program.derived {
		return refuse(program, "the program "+quote(program.source)+" of awk is only known at run time", "put it in single quotes, and pass values by -v name=\"$value\"")
	}
	if what := awkRuns(program.text); what != "" {
		return refuse(program, "the program of awk can run commands by "+what, "remove it")
	}
	for _, arg := range words[i+1:] {
		if arg.known && strings.HasPrefix(arg.text, "-") && len(arg.text) > 1 {
			return refuse(arg, "some versions of awk take "+quote(arg.source)+" for an option", "put options first")
		}
	}
	return nil
}

// awkRuns says by what the program can run commands. It looks for names everywhere, and for pipes outside of strings. In
// a program with slashes it is unclear where strings are, so it looks for pipes everywhere.
func awkRuns(program string) string {
	for _, name := range []string{"system", "@"} {
		if strings.Contains(program, name) {
			return quote(name)
		}
	}
	code := program
	if !strings.ContainsAny(program, "/\\") {
		code = withoutStrings(program)
	} else if awkPlainPattern(program) {
		return ""
	}
	code = strings.ReplaceAll(code, "||", "  ")
	if strings.Contains(code, "|") {
		return "a pipe"
	}
	return ""
}

// awkPlainPattern accepts programs of one pattern and an action without pipes: /a|b/ {…}.
func awkPlainPattern(program string) bool {
	rest, ok := strings.CutPrefix(strings.TrimSpace(program), "/")
	if !ok {
		return false
	}
	pattern, action, ok := strings.Cut(rest, "/")
	if !ok || strings.ContainsAny(pattern, "\\[\"\n") || strings.ContainsAny(action, "/\\") {
		return false
	}
	action = strings.ReplaceAll(withoutStrings(action), "||", "  ")
	return !strings.Contains(action, "|")
}

// withoutStrings removes double-quoted strings from a text without comments. Comments may hold quotes, so it leaves a
// text with a comment as it is.
func withoutStrings(text string) string {
	if strings.Contains(text, "#") {
		return text
	}
	var out strings.Builder
	inside := false
	for _, r := range text {
		switch {
		case r == '"':
			inside = !inside
		case r == '\n':
			inside = false
			out.WriteRune(r)
		case !inside:
			out.WriteRune(r)
		}
	}
	return out.String()
}
