package sandbox

import (
	"fmt"
	"strings"
	"sync"

	"toolcall.dev/operator/internal/result"
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

// lastRefused returns the refusal that came last, and a clause about how many other programs were refused, if any.
func (o *observed) lastRefused() (last result.Program, others string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	paths := map[string]bool{o.last.Path: true}
	for _, p := range o.refused.list {
		paths[p.Path] = true
	}
	switch n := len(paths) - 1; {
	case o.refused.more > 0:
		return o.last, fmt.Sprintf("At least %d other programs were refused too", n)
	case n == 1:
		return o.last, "1 other program was refused too"
	case n > 1:
		return o.last, fmt.Sprintf("%d other programs were refused too", n)
	}
	return o.last, ""
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
