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
	point   = regexp.MustCompile(`(?ms)^- (Symptom|Fix): (.*?)(?:\n- |\n#|\n\n|\z)`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// console is JSON with what the console says about each reason: the page's symptom and fix, as text without links.
func console(blocks []block, page string) (string, error) {
	all := map[string]advice{}
	names := heading.FindAllStringSubmatchIndex(page, -1)
	for i, at := range names {
		end := len(page)
		if i+1 < len(names) {
			end = names[i+1][0]
		}
		if name := page[at[2]:at[3]]; isReason(blocks, name) {
			a := adviceOf(page[at[1]:end])
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

func adviceOf(section string) (a advice) {
	// A point may begin where the one before it ends.
	for rest := section; ; {
		found := point.FindStringSubmatchIndex(rest)
		if found == nil {
			return a
		}
		text := linked.ReplaceAllString(strings.Join(strings.Fields(rest[found[4]:found[5]]), " "), "$1")
		if rest[found[2]:found[3]] == "Fix" {
			a.Fix = text
		} else {
			a.Symptom = text
		}
		rest = rest[found[5]:]
	}
}
