package guards

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

const (
	// maxNesting bounds how deep the constructs of one script nest.
	maxNesting = 100
	// maxOperators bounds the operators of one list, for which the syntax tree nests.
	maxOperators = 5000
	// maxFrames bounds the calls within calls of the parser. maxNesting commands take about half of them, and an operator or
	// a parenthesis of arithmetic up to 35.
	maxFrames = 2048
)

// errNestsTooDeep is the parser's error for a script that nests too deeply.
var errNestsTooDeep = errors.New("the script nests too deeply")

// depthReader ends a parse that recurses too deeply. The parser reads each part of the text from within its recursion, so
// the stack shows how deep that is, whatever the parser takes for quotes and comments.
type depthReader struct {
	rest string
}

// Read never ends within a character: the parser takes no error there.
func (r *depthReader) Read(buffer []byte) (int, error) {
	var frame [1]uintptr
	if runtime.Callers(maxFrames, frame[:]) > 0 {
		return 0, errNestsTooDeep
	}
	if r.rest == "" {
		return 0, io.EOF
	}
	n := copy(buffer, cutBytes(r.rest, max(len(buffer), utf8.UTFMax)))
	r.rest = r.rest[n:]
	return n, nil
}

// parse returns the tree of a script that doesn't nest too deeply.
func parse(text string, language syntax.LangVariant) (*syntax.File, error) {
	file, err := syntax.NewParser(syntax.Variant(language)).Parse(&depthReader{text}, "")
	if err == nil && nestsTooDeep(file) {
		return nil, errNestsTooDeep
	}
	return file, err
}

// nestsTooDeep bounds the recursion of all that reads the tree.
func nestsTooDeep(file *syntax.File) bool {
	var path []syntax.Node
	nesting, operators := 0, 0
	tooDeep := false
	count := func(node syntax.Node, by int) {
		switch node.(type) {
		case *syntax.File, *syntax.Stmt, *syntax.CallExpr, *syntax.Word, *syntax.Lit:
		case *syntax.BinaryCmd, *syntax.BinaryArithm:
			operators += by
		default:
			nesting += by
		}
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		if tooDeep {
			return false
		}
		if node == nil {
			count(path[len(path)-1], -1)
			path = path[:len(path)-1]
			return false
		}
		path = append(path, node)
		count(node, 1)
		tooDeep = nesting > maxNesting || operators > maxOperators
		return !tooDeep
	})
	return tooDeep
}

// hasTooManyCommands counts characters that can begin a command or an expansion.
func hasTooManyCommands(text string) bool {
	count := 0
	for _, c := range "\n;&|`$(" {
		count += strings.Count(text, string(c))
	}
	return count > maxSeparators
}
