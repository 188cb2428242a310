package programs

import (
	"slices"
	"strings"
	"sync"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// observed counts what was executed and what was refused.
type observed struct {
	mu                sync.Mutex
	executed, refused programCounts
	// last is the refusal that came last.
	last result.Program
	// tries are what threads tried last, by their numbers.
	tries [16]search
}

type programCounts struct {
	list []result.Program
	more int64
}

func (c *programCounts) add(p result.Program) {
	for i := range c.list {
		if c.list[i].Path == p.Path && c.list[i].Rule == p.Rule {
			c.list[i].Count++
			return
		}
	}
	if len(c.list) == result.MaxPrograms {
		c.more++
		return
	}
	p.Count = 1
	c.list = append(c.list, p)
}

func (o *observed) addExecuted(path string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.executed.add(result.Program{Path: textOf(path)})
}

func (o *observed) addRefused(path, rule string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = result.Program{Path: textOf(path), Rule: rule}
	o.refused.add(o.last)
}

// lastRefused returns the refusal that came last, and a sentence about other programs, if any.
func (o *observed) lastRefused() (last result.Program, others string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var paths []string
	for _, p := range o.refused.list {
		if p.Path != o.last.Path && !slices.Contains(paths, p.Path) {
			paths = append(paths, p.Path)
		}
	}
	return o.last, result.OthersRefused("program", "status.refused", paths, o.refused.more > 0)
}

// textOf is a path as text, and whole: the outcome is redacted before it is shortened.
func textOf(path string) string { return strings.ToValidUTF8(path, "\uFFFD") }

// shortPaths are the first paths, each whole.
func shortPaths(paths []string) []string {
	var first []string
	for _, path := range paths[:min(len(paths), result.MaxPaths)] {
		first = append(first, textOf(path))
	}
	return first
}

// try is what a thread wants to execute, and what it is refused as. Addresses are of its memory.
type try struct {
	thread     kernel.Thread
	argv, env  uint64
	path, rule string
}

// search is a try with the path that was asked for first: a C library that looks for a program in PATH asks for it in one directory
// after another, which may be links to each other.
type search struct {
	try
	first string
}

// addTry counts a refusal, unless it belongs to a search that is counted already.
func (o *observed) addTry(t try, asked string) {
	o.mu.Lock()
	s := &o.tries[int(t.thread)%len(o.tries)]
	isNew := s.try != t || s.first == asked
	if isNew {
		*s = search{t, asked}
	}
	o.mu.Unlock()
	if isNew {
		o.addRefused(t.path, t.rule)
	}
}

// report adds what was executed and refused to an outcome.
func (o *observed) report(to *result.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	to.Executed, to.MoreExecuted = o.executed.list, o.executed.more
	to.Refused, to.MoreRefused = o.refused.list, o.refused.more
}
