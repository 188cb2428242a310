// Command failedtests lists the failed tests of the events of go test -json in the files that its arguments name: each with its package,
// without those that are parts of others. It exits with 1 when a package failed otherwise: it doesn't compile, or it ended before its
// tests did, as after a panic.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// event is one line of go test -json; go doc test2json describes it.
type event struct {
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
	failed, isWhole := failures(all)
	fmt.Print(failed)
	if !isWhole {
		os.Exit(1)
	}
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

// failures returns a line for each failed test that is no part of another: its package and its name. isWhole is false if a package
// failed for another reason.
func failures(all []event) (lines string, isWhole bool) {
	var text strings.Builder
	started, failed := map[string]bool{}, map[string]bool{}
	isWhole = true
	for _, e := range all {
		test := e.Package + " " + e.Test
		switch isPart := strings.Contains(e.Test, "/"); {
		case strings.HasPrefix(e.Output, "panic: "):
			isWhole = false
		case isPart || e.Package == "":
		case e.Action == "run":
			started[test] = true
		case e.Test != "" && (e.Action == "pass" || e.Action == "skip"):
			delete(started, test)
		case e.Action != "fail":
		case e.Test == "":
			isWhole = isWhole && failed[e.Package]
		default:
			delete(started, test)
			failed[e.Package] = true
			text.WriteString(test + "\n")
		}
	}
	return text.String(), isWhole && len(started) == 0
}
