package guards

import (
	"slices"
	"strings"
)

// testBuiltin checks test and [. They tell operators from operands only when they run, and -v evaluates the subscript of
// its operand.
func (w *walker) testBuiltin(words []word) *refusal {
	args := words[1:]
	if words[0].text == "[" && len(args) > 0 && args[len(args)-1].is("]") {
		args = args[:len(args)-1]
	}
	unknown := false
	for i, arg := range args {
		if arg.many && (!arg.numbers || len(args) > 4) {
			return refuse(arg, quote(arg.source)+" may expand to operators of "+words[0].text, "put it in double quotes, as in \"$name\"")
		}
		if (arg.is("-v") || arg.is("-R")) && i+1 < len(args) && !isName(args[i+1].text) {
			return refuse(arg, arg.text+" would evaluate the subscript in "+quote(args[i+1].source), "test a plain name")
		}
		unknown = unknown || !arg.known || arg.is("-v") || arg.is("-R")
	}
	if !unknown || testShape(args) {
		return nil
	}
	return refuse(words[0], "an operand of "+words[0].text+" may be taken for an operator", "use one test each, joined by && or ||, or [[ ]]")
}

// testShape reports whether no operand can be taken for an operator, whatever it expands to.
func testShape(args []word) bool {
	for len(args) > 1 && len(args) < 5 && args[0].is("!") {
		args = args[1:]
	}
	switch len(args) {
	case 0, 1:
		return true
	case 2:
		return args[0].known
	case 3:
		return args[1].known && isBinaryTest(args[1].text)
	default:
		return joinedTests(args, 2) || joinedTests(args, 3)
	}
}

// joinedTests accepts tests of one size that are joined by -a or -o. Their operators are in fixed positions.
func joinedTests(args []word, size int) bool {
	if (len(args)+1)%(size+1) != 0 {
		return false
	}
	for i, arg := range args {
		switch place := i % (size + 1); {
		case place == size && !arg.is("-a") && !arg.is("-o"):
			return false
		case size == 2 && place == 0 && (!arg.known || !isUnaryTest(arg.text)):
			return false
		case size == 3 && place == 1 && (!arg.known || !isBinaryTest(arg.text)):
			return false
		}
	}
	return true
}

func isBinaryTest(text string) bool {
	switch text {
	case "=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef":
		return true
	}
	return false
}

func isUnaryTest(text string) bool {
	return len(text) == 2 && text[0] == '-' && strings.IndexByte("bcdefghknoprstuwxzLNOGS", text[1]) >= 0
}

func harmlessSetOption(name string) bool {
	return slices.Contains([]string{
		"allexport", "braceexpand", "errexit", "errtrace", "functrace", "hashall", "noclobber", "noglob", "nolog",
		"notify", "nounset", "physical", "pipefail", "verbose", "xtrace",
	}, name)
}

// setBuiltin allows options that don't change how bash reads the script.
func (w *walker) setBuiltin(words []word) *refusal {
	for i := 1; i < len(words); i++ {
		arg := words[i]
		switch {
		case arg.is("--") || arg.is("-"):
			return nil
		case !arg.known && (arg.many || arg.mayBe("-") || arg.mayBe("+") || strings.HasPrefix(arg.text, "-") || strings.HasPrefix(arg.text, "+")):
			return refuse(arg, quote(arg.source)+" may expand to an option of set", "write set -- before it")
		case arg.text == "" || arg.text[0] != '-' && arg.text[0] != '+':
			return nil
		}
		letters := arg.text[1:]
		if strings.HasSuffix(letters, "o") && i+1 < len(words) {
			letters = strings.TrimSuffix(letters, "o")
			if i++; !words[i].known || !harmlessSetOption(words[i].text) {
				return refuse(words[i], "the option "+quote(words[i].source)+" of set changes how bash parses the script", "leave it out")
			}
		}
		if strings.Trim(letters, "aefuxvbCETBhP") != "" {
			return refuse(arg, "the option "+quote(arg.text)+" of set changes how bash parses the script, or can't be checked", "use options like -e, -u, -x and -o pipefail")
		}
	}
	return nil
}
