// Command structure prints how large the code is that a reader has to hold in the head: lines of Go, methods of a type, mutexes of the
// control path, packages with many files, rows of state in memory, pages of documentation.
//
//	go -C hack run ./structure [ROOT]
package main

import (
	"bufio"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// controlPath are the folders whose mutexes are counted.
var controlPath = []string{"controllers/", "internal/dispatch/", "internal/host/", "internal/queue/", "internal/trigger/", "internal/apicache/"}

const manyFiles = 20

type measured struct {
	root    string
	lines   int
	mutexes int
	// files are those of each folder, without tests and what only they import; methods those of each type.
	files, methods map[string]int
}

func main() {
	root := ".."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	if err := run(root); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	m := &measured{root: root, files: map[string]int{}, methods: map[string]int{}}
	if err := filepath.WalkDir(root, m.visit); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return err
	}
	rows, err := rowsInMemory(filepath.Join(root, "docs", "reliability.md"))
	if err != nil {
		return err
	}
	fmt.Printf("lines of Go without tests, generated files, blanks and comments: %d\n", m.lines)
	fmt.Printf("methods of the largest types:%s\n", largest(m.methods, 5, 0))
	fmt.Printf("mutexes in %s: %d\n", strings.Join(controlPath, " "), m.mutexes)
	fmt.Printf("rows of state in memory (docs/reliability.md): %d\n", rows)
	fmt.Printf("packages of more than %d files:%s\n", manyFiles, largest(m.files, len(m.files), manyFiles))
	fmt.Printf("pages of documentation: %d\n", len(pages))
	return nil
}

func (m *measured) visit(path string, d fs.DirEntry, err error) error {
	switch name := d.Name(); {
	case err != nil:
		return err
	case d.IsDir() && (name == "bin" || name == "dist" || name == "testdata" || name == "node_modules" || name == "test" || name == "testing" || strings.HasPrefix(name, ".") && path != m.root):
		return fs.SkipDir
	case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "zz_generated"):
		return nil
	}
	relative, err := filepath.Rel(m.root, path)
	if err != nil {
		return err
	}
	return m.measure(path, filepath.ToSlash(relative))
}

func (m *measured) measure(path, name string) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, source, 0)
	if err != nil {
		return err
	}
	m.lines += codeLines(source)
	folder := name[:strings.LastIndexByte(name, '/')+1]
	m.files[strings.TrimSuffix(folder, "/")]++
	for _, decl := range parsed.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil {
			m.methods[folder+receiver(f.Recv.List[0].Type)]++
		}
	}
	if slices.ContainsFunc(controlPath, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
		ast.Inspect(parsed, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && (s.Sel.Name == "Mutex" || s.Sel.Name == "RWMutex") {
				m.mutexes++
			}
			return true
		})
	}
	return nil
}

// codeLines are those that a token begins or ends on.
func codeLines(source []byte) int {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	lines := map[int]struct{}{}
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue
		}
		first := file.Line(pos)
		for i := range strings.Count(text, "\n") + 1 {
			lines[first+i] = struct{}{}
		}
	}
}

func receiver(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	default:
		return "?"
	}
}

// largest lists the n largest counts that are above a minimum.
func largest(counts map[string]int, n, above int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	var b strings.Builder
	for _, name := range names[:min(n, len(names))] {
		if counts[name] > above {
			fmt.Fprintf(&b, "\n  %4d  %s", counts[name], name)
		}
	}
	return b.String()
}

// rowsInMemory counts the rows of the table of what the operator keeps in memory.
func rowsInMemory(page string) (rows int, err error) {
	f, err := os.Open(page)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	inSection := false
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "## "):
			inSection = strings.Contains(line, "in memory")
		case inSection && strings.HasPrefix(line, "| "):
			rows++
		}
	}
	// The heading is a row, too.
	return max(rows-1, 0), lines.Err()
}
