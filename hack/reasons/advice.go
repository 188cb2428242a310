package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// sections is the page of the documentation that has a section for each reason.
const sections = "docs/troubleshooting.md"

// advice is what a section says.
type advice struct {
	Symptom string `json:"symptom"`
	Fix     string `json:"fix"`
}

var (
	heading = regexp.MustCompile(`(?m)^### (\w+)$`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// console is JSON with what the console says about each reason: the page's symptom and fix, as text without links.
func console(blocks []block, page string) (string, error) {
	all := map[string]advice{}
	parts := heading.Split(page, -1)
	for i, found := range heading.FindAllStringSubmatch(page, -1) {
		if name := found[1]; isReason(blocks, name) {
			a := adviceOf(parts[i+1])
			if a.Symptom == "" || a.Fix == "" {
				return "", fmt.Errorf("%s: the section %s needs a symptom and a fix", sections, name)
			}
			all[name] = a
		}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err := encoder.Encode(all)
	return out.String(), err
}

func isReason(blocks []block, name string) bool {
	for _, of := range blocks {
		for _, c := range of.constants {
			if c.kind == "reason" && c.value == name {
				return true
			}
		}
	}
	return false
}

// adviceOf reads the list that a section begins with.
func adviceOf(section string) (a advice) {
	list, _, _ := strings.Cut(strings.TrimSpace(section), "\n\n")
	for point := range strings.SplitSeq("\n"+list, "\n- ") {
		name, text, _ := strings.Cut(point, ": ")
		text = linked.ReplaceAllString(strings.Join(strings.Fields(text), " "), "$1")
		switch name {
		case "Symptom":
			a.Symptom = text
		case "Fix":
			a.Fix = text
		}
	}
	return a
}
