package guards

// refusal says why something may not run.
type refusal struct {
	// what was refused and why; fix is what would pass.
	what, fix string
	// parse says that the script can't be parsed.
	parse bool
	line  uint
	col   uint
}

// refuse refuses a word.
func refuse(at word, what, fix string) *refusal {
	return &refusal{what: what, fix: fix, line: at.line, col: at.column}
}

// withPosition sets the position of the refusal to that of a word, if the word has one.
func (r *refusal) withPosition(at word) *refusal {
	if r != nil && at.line > 0 {
		r.line, r.col = at.line, at.column
	}
	return r
}

func firstRefusal(refusals ...*refusal) *refusal {
	for _, refused := range refusals {
		if refused != nil {
			return refused
		}
	}
	return nil
}
