package guards

import (
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// parsers keeps parsers for reuse: a new one costs more than parsing a short script. What a parser returned is
// never changed by its next use.
type parsers struct {
	bash, posix sync.Pool
}

func (p *parsers) parse(text string, lang syntax.LangVariant) (*syntax.File, error) {
	pool := &p.bash
	if lang == syntax.LangPOSIX {
		pool = &p.posix
	}
	parser, _ := pool.Get().(*syntax.Parser)
	if parser == nil {
		parser = syntax.NewParser(syntax.Variant(lang))
	}
	file, err := parser.Parse(strings.NewReader(text), "")
	// A parser that panics never comes back to the pool.
	pool.Put(parser)
	return file, err
}
