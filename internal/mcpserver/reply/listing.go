package reply

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"toolcall.dev/operator/api/v1alpha1"
)

// found is one line of what the operations List, Glob and Grep write. The fields that a model doesn't need are left out.
type found struct {
	Path       string   `json:"path"`
	Type       string   `json:"type"`
	Size       *int64   `json:"size"`
	Target     string   `json:"target"`
	LineNumber int64    `json:"lineNumber"`
	Line       string   `json:"line"`
	Cut        bool     `json:"cut"`
	Before     []string `json:"before"`
	After      []string `json:"after"`
}

// listing rewrites what an operation on files found: a line for each file, or as grep does for each line. What can't be read stays as it is.
func listing(operation v1alpha1.FileOperation, text string) string {
	write := map[v1alpha1.FileOperation]func(*found, *strings.Builder){
		v1alpha1.FileList: (*found).writeEntry, v1alpha1.FileGlob: (*found).writeEntry, v1alpha1.FileGrep: (*found).writeMatch,
	}[operation]
	if write == nil || text == "" {
		return text
	}
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		f := &found{}
		if json.Unmarshal([]byte(line), f) != nil || f.Path == "" {
			b.WriteString(line + "\n")
			continue
		}
		write(f, &b)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// marks follow the names of what isn't a file.
var marks = map[string]string{"Directory": "/", "Pipe": " (pipe)", "Socket": " (socket)", "Device": " (device)"}

// writeEntry writes "name", "name 123" with the size of a file, "name/" or "name -> target".
func (f *found) writeEntry(b *strings.Builder) {
	b.WriteString(Plain(f.Path) + marks[f.Type])
	switch {
	case f.Target != "":
		b.WriteString(" -> " + Plain(f.Target))
	case f.Type == "Link":
		b.WriteString(" (link)")
	case f.Type == "File" && f.Size != nil:
		fmt.Fprintf(b, " %d", *f.Size)
	}
	b.WriteString("\n")
}

// writeMatch writes "path:12:line", and lines around it as "path-11-line".
func (f *found) writeMatch(b *strings.Builder) {
	path := Plain(f.Path)
	around := func(first int64, lines []string) {
		for i, line := range lines {
			fmt.Fprintf(b, "%s-%d-%s\n", path, first+int64(i), printable(line))
		}
	}
	around(f.LineNumber-int64(len(f.Before)), f.Before)
	fmt.Fprintf(b, "%s:%d:%s", path, f.LineNumber, printable(f.Line))
	if f.Cut {
		b.WriteString(" (a part of a longer line)")
	}
	b.WriteString("\n")
	around(f.LineNumber+1, f.After)
	if len(f.Before)+len(f.After) > 0 {
		b.WriteString("--\n")
	}
}

// Plain quotes a path that could pass for something else than one path.
func Plain(path string) string {
	isStrange := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar || r == '"' }
	if strings.ContainsFunc(path, isStrange) || strings.TrimSpace(path) != path || strings.Contains(path, " -> ") || strings.HasPrefix(path, "[") {
		return strconv.Quote(path)
	}
	return path
}

// printable replaces control characters, so that a line stays one.
func printable(line string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, line)
}
