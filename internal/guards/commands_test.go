package guards

import (
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

func TestCommandsThatAreNotKnown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		shell  []string
		want   string
	}{
		"a script that bash can't parse":     {"if true", nil, "line 1"},
		"bytes that aren't UTF-8":            {"echo \xff", nil, "not valid UTF-8"},
		"a script that nests too deeply":     {strings.Repeat("(", 500) + "true" + strings.Repeat(")", 500), nil, "nests too deeply"},
		"more commands than are listed":      {strings.Repeat("a\n", MaxParts+1), nil, "more than 1024 commands"},
		"many more commands":                 {strings.Repeat("a\n", 60000), nil, "too many commands"},
		"a script for another kind of shell": {"git push", []string{"fish", "-c"}, `shell is "fish -c"`},
	} {
		if got, err := Commands(c.script, c.shell); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
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
