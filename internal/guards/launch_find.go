package guards

import "strings"

// findArity is how many arguments each predicate of find takes. One that isn't listed is refused.
func findArity(name string) (int, bool) {
	const none = " -a -and -o -or -not ! ( ) , -daystart -depth -d -delete -empty -executable -readable -writable -false -true " +
		"-follow -ignore_readdir_race -noignore_readdir_race -ls -mount -noleaf -nogroup -nouser -nowarn -warn -print -print0 " +
		"-prune -quit -xdev -help -version --help --version "
	const one = " -name -iname -path -ipath -wholename -iwholename -regex -iregex -lname -ilname -type -xtype -maxdepth -mindepth " +
		"-size -newer -anewer -cnewer -mtime -atime -ctime -mmin -amin -cmin -user -group -uid -gid -perm -links -inum -samefile " +
		"-fstype -printf -fprint -fprint0 -fls -used -context -regextype -files0-from "
	if name == "" || strings.ContainsAny(name, " ") {
		return 0, false
	}
	switch {
	case strings.Contains(none, " "+name+" "):
		return 0, true
	case strings.Contains(one, " "+name+" "), len(name) == len("-newerXY") && strings.HasPrefix(name, "-newer"):
		return 1, true
	case name == "-fprintf":
		return 2, true
	}
	return 0, false
}

// checkFind parses the expression of find, to know which words are arguments of a predicate.
func checkFind(c *checker, words []word) *refusal {
	i := 1
	for i < len(words) && (words[i].is("-H") || words[i].is("-L") || words[i].is("-P") || isFindLevel(words[i])) {
		i++
	}
	start := findStart(words[i:])
	for i < len(words) {
		arg := words[i]
		switch {
		case arg.known && isFindExec(arg.text):
			size, refused := c.findCommand(words[i:], start)
			if refused != nil {
				return refused
			}
			i += size
		case arg.known && !isFindWord(arg.text):
			i++
		case arg.known:
			size, refused := findPredicate(words[i:])
			if refused != nil {
				return refused
			}
			i += size
		case arg.isCertain():
			i++
		default:
			return refuse(arg, quote(arg.source)+" may expand to an action of find like -exec", "put ./ before it, or write it out")
		}
	}
	return nil
}

// findStart returns what the paths that find prints start with: the start of the paths that it is given.
func findStart(words []word) string {
	start := ""
	for i, arg := range words {
		if arg.known && isFindWord(arg.text) {
			if i == 0 {
				start = "."
			}
			break
		}
		if i == 0 {
			start = arg.text
		}
		start = commonPrefix(start, arg.text)
	}
	for _, arg := range words {
		if strings.HasPrefix(arg.text, "-files0") {
			return ""
		}
	}
	return start
}

func isFindLevel(arg word) bool {
	return arg.is("-O0") || arg.is("-O1") || arg.is("-O2") || arg.is("-O3")
}

func isFindExec(text string) bool {
	return text == "-exec" || text == "-execdir" || text == "-ok" || text == "-okdir"
}

// isFindWord reports whether find takes the word for a part of its expression rather than a path.
func isFindWord(text string) bool {
	return text != "" && (text[0] == '-' && text != "-" || text == "!" || text == "(" || text == ")" || text == ",")
}

func findPredicate(words []word) (int, *refusal) {
	arity, ok := findArity(words[0].text)
	if !ok {
		return 0, refuse(words[0], "the predicate "+quote(words[0].text)+" of find is not known to be harmless", "leave it out")
	}
	for i := 1; i <= arity && i < len(words); i++ {
		if !words[i].isSingle() {
			return 0, refuse(words[i], quote(words[i].source)+" may expand to several words, which find would take for actions", "put it in quotes")
		}
	}
	return 1 + arity, nil
}

// findCommand checks the command of an action and returns the number of words of the action. The command ends at ";", or
// at "+" after "{}".
func (c *checker) findCommand(words []word, start string) (int, *refusal) {
	end := 1
	for end < len(words) && !words[end].is(";") && !(words[end].is("+") && words[end-1].is("{}")) {
		if !words[end].known && (words[end].many && !words[end].isCertain() || words[end].mayBe(";") || words[end].mayBe("+")) {
			return 0, refuse(words[end], quote(words[end].source)+" may expand to the end of the command of find "+words[0].text, "put ./ before it, or write it out")
		}
		end++
	}
	command := append([]word{}, words[1:end]...)
	if len(command) == 0 {
		return end + 1, nil
	}
	if words[0].is("-execdir") || words[0].is("-okdir") {
		start = ""
	}
	replaceMarker(command, "{}", start)
	return end + 1, c.checkProgram(command)
}
