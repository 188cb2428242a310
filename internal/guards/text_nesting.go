package guards

import "strings"

// nestsTooDeep bounds the recursion of the parser and of the walker. It ignores quotes: it counts characters that may open
// or close a construct. Ordinary scripts are far below both bounds.
func nestsTooDeep(text string) bool {
	depth, deepest, operators := 0, 0, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '(' || c == '{' || c == '[':
			depth++
		case c == ')' || c == '}' || c == ']':
			depth = max(depth-1, 0)
		case strings.IndexByte("|&!~-+*/<>=,?:%^`\"", c) >= 0:
			operators++
		case c == '\n' || c == ';':
			operators = 0
		case wordStarts(text, i):
			depth = max(depth+keywordDepth(text[i:]), 0)
		}
		if operators > maxOperators {
			return true
		}
		deepest = max(deepest, depth)
	}
	return deepest > maxNesting
}

func wordStarts(text string, i int) bool {
	return i == 0 || strings.IndexByte(" \t\n;&|(){}!`", text[i-1]) >= 0
}

// keywordDepth is by how much a reserved word at the start of the text changes the nesting.
func keywordDepth(text string) int {
	switch text[0] {
	case 'i', 'w', 'u', 'f', 'c', 's', 't', 'd', 'e':
	default:
		return 0
	}
	end := 0
	for end < len(text) && end < 9 && 'a' <= text[end] && text[end] <= 'z' {
		end++
	}
	switch text[:end] {
	case "if", "while", "until", "for", "case", "select", "time", "coproc", "function", "elif":
		return 1
	case "fi", "done", "esac":
		return -1
	default:
		return 0
	}
}

// hasTooManyCommands counts characters that can begin a command or an expansion.
func hasTooManyCommands(text string) bool {
	count := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\n', ';', '&', '|', '`', '$', '(':
			count++
		}
	}
	return count > maxSeparators
}
