// Command reasons writes what follows from the conditions and reasons in api/v1alpha1/conditions.go: their page of the
// documentation, the constants of the runner, the tables from which the client libraries choose an error, and what the console says
// about each.
//
//	go -C hack run ./reasons
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const source = "api/v1alpha1/conditions.go"

// constant is a condition or a reason.
type constant struct {
	kind, value string
	doc         string
	// ends is the directive of a reason that a call ends with: "error", or "runner" if the runner reports it.
	ends string
	// class is the error of the client libraries, empty where it follows from the phase.
	class string
}

// block is a declaration of constants under one comment.
type block struct {
	doc       string
	constants []constant
}

func main() {
	if err := run(".."); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	text, err := os.ReadFile(filepath.Join(root, source))
	if err != nil {
		return err
	}
	blocks, err := parse(text)
	if err != nil {
		return err
	}
	pageText, err := os.ReadFile(filepath.Join(root, sections))
	if err != nil {
		return err
	}
	explained, err := console(blocks, string(pageText))
	if err != nil {
		return err
	}
	for path, content := range map[string]string{
		"internal/console/static/reasons.json":    explained,
		"docs/reference/conditions.md":            page(blocks),
		"internal/result/zz_generated.reasons.go": runner(blocks),
		"clients/python/src/toolcall/_reasons.py": table(blocks, "#", "CLASS_NAMES = {\n", "    %q: %q,\n", "}\n"),
		"clients/typescript/src/reasons.ts":       table(blocks, "//", "export const CLASS_NAMES = {\n", "  %s: %q,\n", "} as const;\n"),
	} {
		if err := os.WriteFile(filepath.Join(root, path), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func parse(text []byte) (blocks []block, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), source, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	for _, decl := range file.Decls {
		declared, ok := decl.(*ast.GenDecl)
		if !ok || declared.Tok != token.CONST {
			continue
		}
		b := block{doc: declared.Doc.Text()}
		directives := 0
		for _, spec := range declared.Specs {
			c, err := parseConstant(spec.(*ast.ValueSpec))
			if err != nil {
				return nil, err
			}
			if c.kind == "" {
				continue
			}
			b.constants = append(b.constants, c)
			if c.ends != "" {
				directives++
			}
		}
		if directives > 0 && directives < len(b.constants) {
			return nil, fmt.Errorf("%s: of %q some say toolcall:error or toolcall:runner and some don't", source, strings.TrimSpace(b.doc))
		}
		if len(b.constants) > 0 {
			blocks = append(blocks, b)
		}
	}
	return blocks, nil
}

var name = regexp.MustCompile(`^(Condition|Reason)([A-Z].*)$`)

// parseConstant returns one without a kind for what is neither a condition nor a reason.
func parseConstant(spec *ast.ValueSpec) (c constant, err error) {
	parts := name.FindStringSubmatch(spec.Names[0].Name)
	if parts == nil {
		return c, nil
	}
	c = constant{kind: strings.ToLower(parts[1]), value: parts[2], doc: spec.Doc.Text()}
	if literal, ok := spec.Values[0].(*ast.BasicLit); !ok || literal.Value != strconv.Quote(c.value) {
		return c, fmt.Errorf("%s: %s must be %q", source, parts[0], c.value)
	}
	if !strings.HasPrefix(c.doc, parts[0]+" ") {
		return c, fmt.Errorf("%s: %s needs a comment that starts with its name", source, parts[0])
	}
	if spec.Comment == nil {
		return c, nil
	}
	directive, ok := ast.ParseDirective(token.NoPos, spec.Comment.List[0].Text)
	if !ok || directive.Tool != "toolcall" || directive.Name != "error" && directive.Name != "runner" {
		return c, fmt.Errorf("%s: %s has a comment that is no directive of this command", source, parts[0])
	}
	c.ends, c.class = directive.Name, directive.Args
	return c, nil
}

// word is at the beginning of a sentence, unlike the name of a field.
var word = regexp.MustCompile("^[a-z]+ ")

// page is the documentation: a heading from each block's comment, a row from each constant's.
func page(blocks []block) string {
	var b strings.Builder
	b.WriteString("<!-- Generated from the Go constants by `make generate`: change those. -->\n# Conditions and reasons\n")
	for _, of := range blocks {
		title, rest, _ := strings.Cut(oneLine(of.doc), ". ")
		fmt.Fprintf(&b, "\n## %s\n\n", strings.TrimSuffix(title, "."))
		if rest != "" {
			fmt.Fprintf(&b, "%s\n\n", rest)
		}
		fmt.Fprintf(&b, "| %s | meaning |\n|---|---|\n", of.constants[0].kind)
		for _, c := range of.constants {
			_, meaning, _ := strings.Cut(oneLine(c.doc), " ")
			meaning = strings.TrimPrefix(strings.TrimPrefix(meaning, "is "), "says that ")
			if word.MatchString(meaning) {
				meaning = strings.ToUpper(meaning[:1]) + meaning[1:]
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", c.value, strings.ReplaceAll(meaning, "|", `\|`))
		}
	}
	return b.String()
}

// runner is Go, as gofmt has it.
func runner(blocks []block) string {
	var b strings.Builder
	b.WriteString("// Code generated from " + source + " by hack/reasons. DO NOT EDIT.\n\npackage result\n\n// Reasons that a runner reports, as in the API.\nconst (\n")
	for _, of := range blocks {
		for _, c := range of.constants {
			if c.ends != "runner" {
				continue
			}
			for line := range strings.Lines(strings.TrimPrefix(c.doc, "Reason")) {
				b.WriteString("\t// " + line)
			}
			fmt.Fprintf(&b, "\t%s = %q\n", c.value, c.value)
		}
	}
	return b.String() + ")\n"
}

// table gives the class of error for each reason that has one.
func table(blocks []block, comment, begin, row, end string) string {
	var b strings.Builder
	b.WriteString(comment + " Generated from " + source + " by `make generate`: change that.\n\n")
	b.WriteString(comment + " The class of error for each reason with which a call fails.\n" + begin)
	for _, of := range blocks {
		for _, c := range of.constants {
			if c.class != "" {
				fmt.Fprintf(&b, row, c.value, c.class)
			}
		}
	}
	return b.String() + end
}

func oneLine(doc string) string { return strings.Join(strings.Fields(doc), " ") }
