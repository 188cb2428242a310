package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// source is what the pages take from the Go types.
type source struct {
	structs map[string][]member
	// named are the types that aren't structs, by name: what they are made of.
	named map[string]ast.Expr
	// values are the constants of a type, in order.
	values map[string][]value
	// groups are the blocks of constants whose comment says which kinds they belong to.
	groups []group
}

// member is a field of a struct.
type member struct {
	json string
	kind ast.Expr
}

// value is a constant with what is written about it.
type value struct {
	text, meaning string
}

// group is a block of constants under one comment.
type group struct {
	doc    string
	values []value
}

// readSource parses a folder's Go files, without tests and generated ones.
func readSource(folder string) (*source, error) {
	s := &source{structs: map[string][]member{}, named: map[string]ast.Expr{}, values: map[string][]value{}}
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "zz_") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("read the types: %w", err)
		}
		if err := s.add(file); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if len(s.structs) == 0 {
		return nil, fmt.Errorf("no types in %s: give the folder of the API's package", folder)
	}
	return s, nil
}

func (s *source) add(file *ast.File) error {
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		switch decl.Tok {
		case token.TYPE:
			s.addTypes(decl)
		case token.CONST:
			if err := s.addConstants(decl); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *source) addTypes(decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		t := spec.(*ast.TypeSpec)
		structure, ok := t.Type.(*ast.StructType)
		if !ok {
			s.named[t.Name.Name] = t.Type
			continue
		}
		var members []member
		for _, f := range structure.Fields.List {
			if json := jsonName(f); json != "" {
				members = append(members, member{json: json, kind: f.Type})
			}
		}
		s.structs[t.Name.Name] = members
	}
}

// jsonName is empty for what has no field of its own in JSON.
func jsonName(f *ast.Field) string {
	if f.Tag == nil {
		return ""
	}
	name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
	return name
}

func (s *source) addConstants(decl *ast.GenDecl) error {
	g := group{doc: text(decl.Doc)}
	for _, spec := range decl.Specs {
		c := spec.(*ast.ValueSpec)
		if len(c.Values) != 1 {
			continue
		}
		literal, ok := c.Values[0].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		content, err := strconv.Unquote(literal.Value)
		if err != nil {
			return fmt.Errorf("constant %s: %w", c.Names[0].Name, err)
		}
		v := value{text: content, meaning: meaning(c)}
		g.values = append(g.values, v)
		if kind, ok := c.Type.(*ast.Ident); ok {
			s.values[kind.Name] = append(s.values[kind.Name], v)
		}
	}
	if len(g.values) > 0 {
		s.groups = append(s.groups, g)
	}
	return nil
}

// meaning is the comment of a constant as the rest of a table's row, where its name and "is" aren't needed.
func meaning(c *ast.ValueSpec) string {
	rest := strings.TrimPrefix(text(c.Doc), c.Names[0].Name+" ")
	for _, prefix := range []string{"says that ", "is "} {
		rest = strings.TrimPrefix(rest, prefix)
	}
	return capitalised(rest)
}

// capitalised leaves a first word that is a field's path as it is.
func capitalised(s string) string {
	first, _, _ := strings.Cut(s, " ")
	if s == "" || strings.ToLower(first) != first || strings.Contains(first, ".") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// text is a comment in one line, without markers.
func text(doc *ast.CommentGroup) string {
	if doc == nil {
		return ""
	}
	return oneLine(doc.Text())
}

// oneLine also drops the markers of controller-gen, which ast.CommentGroup keeps.
func oneLine(s string) string {
	var kept []string
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "+") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, " ")
}

// element takes pointers, lists and maps off a type. The suffix is what they add to a field's path.
func element(kind ast.Expr) (ast.Expr, string) {
	switch k := kind.(type) {
	case *ast.StarExpr:
		return element(k.X)
	case *ast.ArrayType:
		inner, suffix := element(k.Elt)
		return inner, "[]" + suffix
	case *ast.MapType:
		inner, suffix := element(k.Value)
		return inner, "{}" + suffix
	default:
		return kind, ""
	}
}

// foreign is the name of a type of another package, such as corev1.Toleration; empty for our own.
func foreign(kind ast.Expr) string {
	selector, ok := kind.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	return selector.X.(*ast.Ident).Name + "." + selector.Sel.Name
}

// own is the name of a type of this package; also of those that Go has itself.
func own(kind ast.Expr) string {
	if name, ok := kind.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}
