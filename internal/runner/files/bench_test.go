package files

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/spec"
)

// benchTree makes 10,000 files of source text in 500 directories.
func benchTree(b *testing.B) *world {
	b.Helper()
	w := newWorld(b)
	random := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("func return error context package import string int64 struct range nil const reader writer buffer " +
		"if else for := == != { } ( ) // the of and a to in is that it was result request options handler")
	for i := range 10_000 {
		var text strings.Builder
		for range 20 + random.IntN(300) {
			text.WriteString(strings.Repeat("\t", random.IntN(3)))
			for range random.IntN(12) {
				text.WriteString(words[random.IntN(len(words))] + " ")
			}
			text.WriteByte('\n')
		}
		if i%100 == 0 {
			fmt.Fprintf(&text, "func needleNumber%d() error { return ErrNeedle }\n", i)
		}
		w.file(fmt.Sprintf("d%d/d%d/d%d/f%d.go", i%5, i%50, i%500, i), text.String())
	}
	return w
}

var benchPatterns = []struct{ name, pattern string }{
	{"literal", `ErrNeedle`},
	{"expression", `needleNumber\d+\(\) error`},
	{"inner literal", `\w+Number\d+\(`},
	{"alternatives", `needleNumber|ErrNeedle`},
	{"any case", `(?i)errneedle`},
	{"common literal", `[A-Z][a-z]+[A-Z]\w+ \}$`},
	{"no literal", `[A-Z][a-z]+[A-Z][a-z]+`},
	{"no literal, long words", `\w{8,}[0-9]\W`},
	{"no literal, whole lines", `^\w+\s\w+[0-9]+\W+\w+\s\W\s\w+\s[A-Z]\w+\s\W$`},
}

// BenchmarkGrep searches the same tree with ripgrep, where it is installed: one goroutine, or thread, for each processor.
func BenchmarkGrep(b *testing.B) {
	w := benchTree(b)
	for _, p := range benchPatterns {
		b.Run(p.name+"/files", func(b *testing.B) {
			for b.Loop() {
				r := &spec.File{Operation: spec.OperationGrep, Path: w.root, Pattern: p.pattern}
				if _, result, err := Do(b.Context(), &w.rules, r); err != nil || number(result.Matches) != 100 {
					b.Fatal(result, err)
				}
			}
		})
		b.Run(p.name+"/ripgrep", func(b *testing.B) {
			rg, err := exec.LookPath("rg")
			if err != nil {
				b.Skip(err)
			}
			for b.Loop() {
				out, err := exec.Command(rg, "--no-config", "-uu", "--line-number", "--glob=!.git", "-e", p.pattern, w.root).Output()
				if n := strings.Count(string(out), "\n"); err != nil || n != 100 {
					b.Fatal(n, err)
				}
			}
		})
	}
}

// BenchmarkSmall does what has to be fast in a session.
func BenchmarkSmall(b *testing.B) {
	w := newWorld(b)
	path := w.file("a/b/c/file", strings.Repeat("a line of text\n", 500))
	for i := range 100 {
		w.file(filepath.Join("dir", fmt.Sprint(i)), "")
	}
	for _, r := range []spec.File{
		{Operation: spec.OperationRead, Path: path},
		{Operation: spec.OperationStat, Path: path},
		{Operation: spec.OperationList, Path: w.root + "/dir"},
		{Operation: spec.OperationGlob, Path: w.root, Pattern: "**/file"},
		{Operation: spec.OperationWrite, Path: w.root + "/new", Content: []byte("text")},
	} {
		b.Run(string(r.Operation), func(b *testing.B) {
			for b.Loop() {
				if _, _, err := Do(b.Context(), &w.rules, &r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	_ = os.Remove(path)
}
