// Command firstfailure prints the output of the test that failed first, from the events of go test -json in the files that its
// arguments name. It exits with 1 when no test failed.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// event is one line of go test -json; go doc test2json describes it.
type event struct {
	Time                          time.Time
	Action, Package, Test, Output string
}

func main() {
	var all []event
	for _, path := range os.Args[1:] {
		file, err := os.Open(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(2)
		}
		all = append(all, read(file)...)
		file.Close()
	}
	first, found := firstFailure(all)
	if !found {
		os.Exit(1)
	}
	fmt.Print(first)
}

// read leaves out what isn't an event: a build can print beside it.
func read(in io.Reader) []event {
	var all []event
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil && e.Action != "" {
			all = append(all, e)
		}
		if err != nil {
			return all
		}
	}
}

// firstFailure returns the name and the output of the test that failed first. A test that fails because a subtest did comes after
// it. A package that fails without a failed test, such as one that doesn't compile, counts as a test.
func firstFailure(all []event) (string, bool) {
	var first event
	for _, e := range all {
		if e.Action == "fail" && (first.Action == "" || e.Time.Before(first.Time)) {
			first = e
		}
	}
	if first.Action == "" {
		return "", false
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s\n", first.Package, first.Test)
	for _, e := range all {
		if e.Action == "output" && e.Package == first.Package && e.Test == first.Test {
			text.WriteString(e.Output)
		}
	}
	return text.String(), true
}
