package docs

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// shown is a command of a console, and what the page says that it prints.
type shown struct {
	line             int
	command, printed string
}

// console gives the commands of a block: the lines after prompts and their continuations.
func (b block) console() []shown {
	var all []shown
	goesOn := false
	for i, line := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
		typed, isCommand := strings.CutPrefix(line, "$ ")
		if isCommand {
			all = append(all, shown{line: b.line + 1 + i})
		}
		switch {
		case isCommand || goesOn:
			all[len(all)-1].command += typed + "\n"
			goesOn = strings.HasSuffix(typed, `\`)
		case len(all) > 0:
			all[len(all)-1].printed += line + "\n"
		}
	}
	return all
}

// mark stands around what a command of a console prints.
const mark = "\x1e"

// marked is the command as a script that says where what it prints begins and ends. It runs in the page's own shell.
func (s shown) marked() string {
	return fmt.Sprintf("printf '%s%d%s'\n{ %s} 2>&1\nprintf '%s'\n", mark, s.line, mark, s.command, mark)
}

var marks = regexp.MustCompile(mark + `(\d+)` + mark + `([^` + mark + `]*)` + mark)

// printed is what the commands of a page printed, by their lines.
func printed(out string) map[int]string {
	all := map[int]string{}
	for _, m := range marks.FindAllStringSubmatch(out, -1) {
		line, _ := strconv.Atoi(m[1])
		all[line] = withoutProgress(m[2])
	}
	return all
}

// withoutProgress leaves out what is said when a pod takes long to start.
func withoutProgress(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.Contains(line, ": waiting") && line != "waiting for the operator\n" {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// prints says whether a command printed what the page shows: an ellipsis stands for anything within its line.
func (s shown) prints(got string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(s.printed), "…", ".*")
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(got)
}

// compareShown compares what the commands of a page printed with what the page shows.
func compareShown(t *testing.T, page, out string, commands []shown) {
	t.Helper()
	got := printed(out)
	for _, s := range commands {
		if text, ran := got[s.line]; ran && !s.prints(text) {
			t.Errorf("%s:%d: %s prints\n%s\nnot\n%s", page, s.line, strings.TrimSpace(s.command), text, s.printed)
		}
	}
}

func TestConsole(t *testing.T) {
	t.Parallel()
	b := block{language: "console", line: 7, text: "$ kubectl get \\\n  tc\nNAME   AGE\nfirst  1s\n$ true\n"}
	got := b.console()
	want := []shown{{8, "kubectl get \\\n  tc\n", "NAME   AGE\nfirst  1s\n"}, {12, "true\n", ""}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestWhatCommandsPrintIsFound(t *testing.T) {
	t.Parallel()
	commands := []shown{
		{line: 3, command: "word=shown\n", printed: ""},
		{line: 4, command: "echo $word; echo warned >&2\n", printed: "s…n\nwarned\n"},
		{line: 6, command: "echo a: waiting; printf end\n", printed: "end"},
	}
	var script strings.Builder
	for _, s := range commands {
		script.WriteString(s.marked())
	}
	out := command{args: []string{"bash", "-euo", "pipefail", "-c", script.String()}}.must(t)
	got := printed(out)
	if want := map[int]string{3: "", 4: "shown\nwarned\n", 6: "end"}; !maps.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for _, s := range commands {
		if !s.prints(got[s.line]) || s.prints(got[s.line]+"more\n") {
			t.Errorf("%q is compared wrongly with %q", got[s.line], s.printed)
		}
	}
}
