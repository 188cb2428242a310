package guards

import (
	"cmp"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// parsers is a pool of parsers: making a parser takes longer than parsing a short script. A parser doesn't change the
// trees that it returned earlier.
type parsers struct {
	pool sync.Pool
	// variant is the language; 0 means bash.
	variant syntax.LangVariant
}

// posixParsers read what POSIX says of a shell.
var posixParsers = parsers{variant: syntax.LangPOSIX}

// parse returns the tree of a script that doesn't nest too deeply.
func (p *parsers) parse(text string) (*syntax.File, error) {
	parser, _ := p.pool.Get().(*syntax.Parser)
	if parser == nil {
		parser = syntax.NewParser(syntax.Variant(cmp.Or(p.variant, syntax.LangBash)))
	}
	file, err := parser.Parse(&depthReader{text}, "")
	// A parser that panics isn't returned to the pool.
	p.pool.Put(parser)
	if err == nil && nestsTooDeep(file) {
		return nil, errNestsTooDeep
	}
	return file, err
}

// language is how messages call it.
func (p *parsers) language() string {
	if p.variant == syntax.LangPOSIX {
		return "sh"
	}
	return "bash"
}
