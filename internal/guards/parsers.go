package guards

import (
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// parsers are pools of parsers: making a parser takes longer than parsing a short script. A parser doesn't change the
// trees that it returned earlier.
type parsers struct {
	bash, posix sync.Pool
}

// parse returns the tree of a script that doesn't nest too deeply.
func (p *parsers) parse(text string, lang syntax.LangVariant) (*syntax.File, error) {
	pool := &p.bash
	if lang == syntax.LangPOSIX {
		pool = &p.posix
	}
	parser, _ := pool.Get().(*syntax.Parser)
	if parser == nil {
		parser = syntax.NewParser(syntax.Variant(lang))
	}
	file, err := parser.Parse(&depthReader{text}, "")
	// A parser that panics isn't returned to the pool.
	pool.Put(parser)
	if err == nil && nestsTooDeep(file) {
		return nil, errNestsTooDeep
	}
	return file, err
}
