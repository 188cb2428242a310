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
	// maxDepth bounds how deep the tree of a script nests, which it does for each operator of a list.
	maxDepth = 10000
	// maxFrames bounds the calls within calls of the parser. A hundred constructs in one another take about half of them, and an operator
	// or a parenthesis of arithmetic up to 35.
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
	file, err := syntax.NewParser(syntax.Variant(language), syntax.KeepComments(true)).Parse(&depthReader{text}, "")
	if err == nil && nestsTooDeep(file) {
		return nil, errNestsTooDeep
	}
	return file, err
}

// nestsTooDeep bounds the recursion of all that reads the tree. The operators of a list nest it without recursion of the parser.
func nestsTooDeep(file *syntax.File) bool {
	depth, isTooDeep := 0, false
	syntax.Walk(file, func(node syntax.Node) bool {
		if node == nil {
			depth--
			return false
		}
		depth++
		isTooDeep = isTooDeep || depth > maxDepth
		return !isTooDeep
	})
	return isTooDeep
}

// hasTooManyCommands counts characters that can begin a command or an expansion.
func hasTooManyCommands(text string) bool {
	count := 0
	for _, c := range "\n;&|`$(" {
		count += strings.Count(text, string(c))
	}
	return count > maxSeparators
}
