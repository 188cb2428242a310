// Package attempts writes shell scripts that try to start programs which aren't listed, for tests that run them for real.
//
// A script is made from bytes: each byte makes one choice, so that a fuzzer can change a script choice by choice, and the
// same bytes make the same script. What ran is told by the programs themselves (Mark), not by what holds them.
package attempts

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Listed are the programs of a policy for the scripts. They include ways to start others: an interpreter, and programs
// with options for it.
var Listed = []string{
	"echo", "cat", "find", "ls", "grep", "sort", "head", "env", "xargs", "test", "git", "printf", "sed", "awk", "tar",
	"bash", "sh", "perl", "cp", "mv", "ln", "chmod", "mkdir",
}

// Names are what scripts try to start.
var Names = []string{"id", "curl", "rm", "touch", "node", "vi", "less", "gpg", "ssh", "-", "a=1", "1"}

// World is what a script finds where it runs.
type World struct {
	// Dir holds programs that aren't listed, by Names. It is in PATH.
	Dir string
	// Copyable is a Mark that can be read. Copies of it aren't listed.
	Copyable string
	// Loader is the dynamic loader.
	Loader string
}

// maxDepth bounds how far commands are nested, maxScript how long a script becomes.
const (
	maxDepth  = 5
	maxScript = 2000
)

// Script makes a script.
func (w World) Script(picks []byte) string {
	g := &generator{World: w, picks: picks}
	if g.pick(6) == 5 {
		return g.soup()
	}
	var script strings.Builder
	for range 1 + g.pick(4) {
		script.WriteString(g.expand(statements[g.pick(len(statements))], 0))
		script.WriteString(separators[g.pick(len(separators))])
	}
	return script.String()
}

// Picks are bytes for a number of scripts, the same ones for the same seed.
func Picks(seed uint64, scripts int) [][]byte {
	random := rand.New(rand.NewPCG(seed, 0))
	all := make([][]byte, scripts)
	for i := range all {
		all[i] = make([]byte, 4+random.IntN(80))
		for j := range all[i] {
			all[i][j] = byte(random.Uint32())
		}
	}
	return all
}

type generator struct {
	World
	picks  []byte
	length int
}

// pick chooses one of n. It is 0 when no byte is left.
func (g *generator) pick(n int) int {
	if len(g.picks) == 0 {
		return 0
	}
	p := int(g.picks[0]) % n
	g.picks = g.picks[1:]
	return p
}

func (g *generator) one(of []string) string { return of[g.pick(len(of))] }

// expand replaces what begins with a percent sign: c is a command, q one in quotes, w a word, u a program that isn't
// listed in some spelling, p its path, n its name, t what can be copied, l the loader.
func (g *generator) expand(template string, depth int) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(template, "%")
		out.WriteString(before)
		if !found {
			g.length += out.Len()
			return out.String()
		}
		out.WriteString(g.part(rest[0], depth))
		template = rest[1:]
	}
}

func (g *generator) part(kind byte, depth int) string {
	isDeep := depth >= maxDepth || g.length > maxScript
	switch {
	case kind == '%':
		return "%"
	case kind == 'n':
		return g.one(Names)
	case kind == 'p':
		return g.Dir + "/" + g.one(Names)
	case kind == 't':
		return g.Copyable
	case kind == 'l':
		return g.Loader
	case kind == 'q':
		return "'" + strings.ReplaceAll(g.part('c', depth+1), "'", `'\''`) + "'"
	case kind == 'w' && !isDeep:
		return g.expand(g.one(words), depth+1)
	case kind == 'c' && !isDeep:
		return g.expand(g.one(commands), depth+1)
	case kind == 'w':
		return "x"
	default:
		return g.spell()
	}
}

// spell writes a program's name in a way that the shell reads as that program.
func (g *generator) spell() string {
	name := g.one(Names)
	path := g.Dir + "/" + name
	parent := g.Dir[strings.LastIndexByte(g.Dir, '/'):]
	return g.one([]string{
		name, path, `\` + name, `"` + name + `"`, name[:1] + `""` + name[1:], fmt.Sprintf(`$'\x%02x%s'`, name[0], name[1:]),
		g.Dir + "/.." + parent + "/" + name, "/proc/self/root" + path, g.Dir + "/" + name[:len(name)-1] + "?", `"$(echo ` + name + `)"`,
		"{" + name + ",}", "${z:-" + path + "}", g.Dir + "/./" + name, name[:1] + "\\\n" + name[1:],
	})
}

// soup puts tokens after one another: it finds what no grammar thinks of.
func (g *generator) soup() string {
	var out strings.Builder
	for len(g.picks) > 0 && out.Len() < maxScript {
		token := g.one(tokens)
		if token == "%u" {
			token = g.spell()
		}
		out.WriteString(token)
	}
	return out.String()
}
