package guards

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommandsOfAScript(t *testing.T) {
	t.Parallel()
	for script, want := range map[string][]Command{
		"":                                 {},
		"X=1":                              {},
		"git push --force":                 {{"git", []string{"push", "--force"}, true}},
		`"git" pu\sh 'a b'`:                {{"git", []string{"push", "a b"}, true}},
		"A=b git status | wc -l && true":   {{"git", []string{"status"}, true}, {"wc", []string{"-l"}, true}, {"true", []string{}, true}},
		`rm "$DIR" *.o`:                    {{"rm", []string{`"$DIR"`, "*.o"}, false}},
		"$tool push":                       {{"$tool", []string{"push"}, false}},
		"echo $(git push)":                 {{"echo", []string{"$(git push)"}, false}, {"git", []string{"push"}, true}},
		"f() { git push; }; (f)":           {{"git", []string{"push"}, true}, {"f", []string{}, true}},
		"if a; then b; else c; fi":         {{"a", []string{}, true}, {"b", []string{}, true}, {"c", []string{}, true}},
		"cat <<X\n$(git push)\nX\n":        {{"cat", []string{}, true}, {"git", []string{"push"}, true}},
		"! time git push ~/x &":            {{"git", []string{"push", "~/x"}, false}},
		"export X=$(git push)":             {{"git", []string{"push"}, true}},
		"for x in $(ls); do git add; done": {{"ls", []string{}, true}, {"git", []string{"add"}, true}},
	} {
		got, err := Commands(script, nil)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v %s", script, err, diff)
		}
	}
}

// What POSIX has is read for every shell, and what only bash has for bash.
func TestCommandsForAShell(t *testing.T) {
	t.Parallel()
	for script, shells := range map[string]string{
		"git push > x 2>&1 & wait": "bash sh dash ash", "f() { local x=$(git push); export y=1 z; readonly z; }; f": "bash sh dash ash",
		"( (git push) ); x=$((1 + 2))": "bash sh dash ash", "cat <<-X\n$(git push)\n\tX\nif [ -n \"$x\" ]; then git push; fi": "bash sh dash ash",
		"git push &> x": "bash", "[[ -n $x ]] && git push": "bash", "a=(1 2); git push": "bash",
	} {
		for _, shell := range []string{"bash", "sh", "dash", "ash"} {
			got, err := Commands(script, []string{"/bin/" + shell, "-c"})
			isRead := slices.ContainsFunc(got, func(c Command) bool { return c.Name == "git" && c.Literal })
			if want := hasField(shells, shell); isRead != want || (err == nil) != want {
				t.Errorf("%q for %s: %v, %v", script, shell, got, err)
			}
		}
	}
}

func TestCommandsThatAreNotKnown(t *testing.T) {
	t.Parallel()
	sh := []string{"sh", "-c"}
	for name, c := range map[string]struct {
		script string
		shell  []string
		want   string
	}{
		"a script that bash can't parse":     {"if true", nil, "line 1"},
		"bytes that aren't UTF-8":            {"echo \xff", nil, "not valid UTF-8"},
		"a script that nests too deeply":     {strings.Repeat("(", 5000) + "true" + strings.Repeat(")", 5000), nil, "nests too deeply"},
		"more commands than are listed":      {strings.Repeat("a\n", MaxParts+1), nil, "more than 1024 commands"},
		"many more commands":                 {strings.Repeat("a\n", 60000), nil, "too many commands"},
		"a script for another kind of shell": {"git push", []string{"fish", "-c"}, `shell is "fish -c"`},
		"&> for sh":                          {"echo &> x git push", sh, "can't be parsed as sh"},
		"&>> for sh":                         {"echo &>> x git push", sh, "can't be parsed as sh"},
		"(( for sh":                          {"((git)); git push", sh, "read the script differently"},
		"a comment in (( for sh":             {"((1 # $(git push)\n))", sh, "sh"},
		"a continued (( for sh":              {"(\\\n(git)); git push", sh, "read the script differently"},
		"$' for sh":                          {"echo $'\\' ; echo '; git push; # '", sh, "read the script differently"},
		`$" for sh`:                          {`$"git" push`, sh, "read the script differently"},
		"$[ for sh":                          {"echo $[ 1 # $(git push) ]", sh, "sh"},
		"[[ for sh":                          {"[[ a < b ]]", sh, "read the script differently"},
		"time for sh":                        {"time git push", sh, "read the script differently"},
		"coproc for sh":                      {"coproc git push", sh, "sh"},
		"a here-string for sh":               {"cat <<< x", sh, "can't be parsed as sh"},
	} {
		if got, err := Commands(c.script, c.shell); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, script := range misreadScripts {
		if got, err := Commands(script, nil); err == nil {
			t.Errorf("%q: %v", script, got)
		}
	}
	if got, err := Commands(strings.Repeat("a\n", MaxParts), nil); err != nil || len(got) != MaxParts {
		t.Errorf("as many commands as are listed: %d, %v", len(got), err)
	}
}

func TestModulesOfASource(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ language, source, want string }{
		{"python", "print(1)", ""},
		{"python", "import numpy as np, os.path\nimport json", "json numpy os os.path"},
		{"python", "from pandas import DataFrame, Series as S\nx = DataFrame()", "pandas"},
		{"python", "from a.b import (c,\n d)\nimport e", "a a.b e"},
		{"python", "from . import sibling\nfrom .near import x\nimport far", "far"},
		{"python", "__import__('socket'); importlib.import_module(\"x.y\")", "socket x x.y"},
		{"python", "try:\n  import a; import b\nexcept ImportError: pass", "a b"},
		{"javascript", "import React, { useState as s } from 'react'\nimport 'node:fs/promises'", "fs fs/promises react"},
		{"javascript", "const x = require(\"@a/b\"), y = await import('./c.js')", "./c.js @a @a/b"},
		{"python", "# import commented", "commented"},
		{"python", "import static as s\nimport qualified", "qualified static"},
		{"go", "import e \"os/exec\"\nimport _ \"net/http\"\nimport . \"os\"", "_ e net net/http os os/exec"},
		{"java", "import static java.net.URI", "java java.net java.net.URI"},
	} {
		got, err := Modules(c.source, c.language)
		if strings.Join(got, " ") != c.want || err != nil {
			t.Errorf("%s %q: %q, %v; want %q", c.language, c.source, got, err, c.want)
		}
	}
}

func TestModulesThatAreNotKnown(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range MaxParts + 1 {
		many.WriteString("import m" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + strings.Repeat("y", i/26) + "\n")
	}
	if got, err := Modules(many.String(), "python"); err == nil {
		t.Errorf("%d modules", len(got))
	}
	if _, err := Modules(strings.Repeat("import ", 70000)+strings.Repeat("/*", 9000), "python"); err != nil {
		t.Log(err) // Bounded: it ends.
	}
}

// What is written out is what the shell passes on: the same words in quotes are the same command.
func FuzzCommands(f *testing.F) {
	for _, script := range []string{"git push", `"git" pu\sh 'a b' | wc; x=$(id) y`, "a <<X\n$(b)\nX", "for i in 1; do a; done", "[ -f x ] && '' {a,b}", "if true"} {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script string) {
		commands, err := Commands(script, nil)
		if err != nil || strings.ContainsAny(script, "\x00\r") {
			return
		}
		for _, c := range commands {
			if !c.Literal {
				continue
			}
			var quoted []string
			for _, word := range append([]string{c.Name}, c.Args...) {
				quoted = append(quoted, "'"+strings.ReplaceAll(word, "'", `'\''`)+"'")
			}
			again, err := Commands(strings.Join(quoted, " "), nil)
			if diff := cmp.Diff([]Command{c}, again); err != nil || diff != "" {
				t.Errorf("%q: %v %s", script, err, diff)
			}
		}
	})
}
