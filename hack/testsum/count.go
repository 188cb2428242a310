package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Totals are numbers of tests, subtests included.
type Totals struct {
	Passed, Failed, Skipped int
}

func (t *Totals) add(o Totals) {
	t.Passed += o.Passed
	t.Failed += o.Failed
	t.Skipped += o.Skipped
}

// event is one line of `go test -json`.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
}

// id is a test, or, without a name, what a package says of itself.
type id struct{ pkg, test string }

// counter reads the events of a run.
type counter struct {
	out    io.Writer
	sum    Totals
	output map[id]*strings.Builder
	// open are tests that have begun and not ended.
	open map[id]bool
	// failures are how many tests of a package failed.
	failures map[string]int
}

func newCounter(out io.Writer) *counter {
	return &counter{out: out, output: map[id]*strings.Builder{}, open: map[id]bool{}, failures: map[string]int{}}
}

func (c *counter) totals() Totals { return c.sum }

// read takes all of the input. Lines that aren't events are passed on: somebody wants to say something.
func (c *counter) read(r io.Reader) {
	reader := bufio.NewReader(r)
	for {
		line, err := reader.ReadString('\n')
		if line != "" {
			e := event{}
			if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
				fmt.Fprint(c.out, line)
			} else {
				c.take(&e)
			}
		}
		if err != nil {
			return
		}
	}
}

func (c *counter) take(e *event) {
	key := id{e.Package, e.Test}
	switch e.Action {
	case "run":
		c.open[key] = true
	case "output":
		c.keep(key, e.Output)
	case "build-output":
		// Of a package that doesn't compile; its tests are not heard of.
		fmt.Fprint(c.out, e.Output)
	case "pass", "skip", "fail":
		c.end(key, e.Action)
	}
}

func (c *counter) keep(key id, text string) {
	if c.output[key] == nil {
		c.output[key] = &strings.Builder{}
	}
	c.output[key].WriteString(text)
}

func (c *counter) end(key id, action string) {
	delete(c.open, key)
	switch {
	case key.test == "":
		c.endPackage(key, action)
	case action == "pass":
		c.sum.Passed++
	case action == "skip":
		c.sum.Skipped++
	default:
		c.fail(key, "FAIL")
	}
	delete(c.output, key)
}

// fail counts a test and shows what it printed.
func (c *counter) fail(key id, verdict string) {
	c.sum.Failed++
	c.failures[key.pkg]++
	fmt.Fprintf(c.out, "--- %s: %s %s\n", verdict, key.pkg, key.test)
	if text := c.output[key]; text != nil {
		fmt.Fprint(c.out, text.String())
	}
}

// endPackage finds what no test accounts for: tests that a panic or the time limit cut off, and a package that
// failed with all its tests passed, or without one.
func (c *counter) endPackage(key id, action string) {
	if action != "fail" {
		return
	}
	var cut []id
	for other := range c.open {
		if other.pkg == key.pkg {
			cut = append(cut, other)
		}
	}
	slices.SortFunc(cut, func(a, b id) int { return strings.Compare(a.test, b.test) })
	for _, other := range cut {
		c.fail(other, "CUT OFF")
		delete(c.open, other)
	}
	if c.failures[key.pkg] == 0 {
		c.fail(key, "FAIL")
	}
}
