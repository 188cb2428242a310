package sandbox

import "slices"

// try is what a thread wants to execute, and what it is refused as. Addresses are of its memory.
type try struct {
	thread     uint32
	argv, env  uint64
	path, rule string
}

// search is a try with the paths that were asked for: a C library that looks for a program in PATH asks for it in one
// directory after another, which may be links to each other.
type search struct {
	try
	asked []string
}

// maxAsked is how many paths of one search are remembered.
const maxAsked = 32

// addTry counts a refusal, unless it belongs to a search that is counted already.
func (o *observed) addTry(t try, asked string) {
	o.mu.Lock()
	s := &o.tries[int(t.thread)%len(o.tries)]
	isNew := s.try != t || slices.Contains(s.asked, asked) || len(s.asked) == maxAsked
	if isNew {
		s.try, s.asked = t, nil
	}
	s.asked = append(s.asked, asked)
	o.mu.Unlock()
	if isNew {
		o.addRefused(t.path, t.rule)
	}
}
