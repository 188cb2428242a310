package files

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/google/go-cmp/cmp"
)

// dice turns fuzzed bytes into choices; when they run out every choice is the first.
type dice struct{ data []byte }

func (d *dice) roll(n int) int {
	if len(d.data) == 0 {
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return int(b) % n
}

// path makes one out of few names, so that it often leads somewhere.
func (d *dice) path() string {
	names := []string{"a", "b", "c", "..", ".", "", "a", "b"}
	var parts []string
	for range 1 + d.roll(4) {
		parts = append(parts, names[d.roll(len(names))])
	}
	if p := strings.Join(parts, "/"); strings.Trim(p, "/") != "" {
		return strings.TrimLeft(p, "/")
	}
	return "."
}

// model is the same tree, changed with the functions of package os alone.
type model struct{ root string }

var errOutside = errors.New("outside")

// real resolves a path with string operations and readlink. What doesn't exist is an error, except for the last name.
func (m *model) real(p string, how how) (string, error) {
	at, links := m.root, 0
	rest := strings.Split(p, "/")
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		last := !slices.ContainsFunc(rest, func(s string) bool { return s != "" && s != "." })
		if info, err := os.Stat(at); err != nil || !info.IsDir() {
			return "", fs.ErrInvalid
		}
		switch name {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		at = path.Join(at, name)
		if !strings.HasPrefix(at, m.root+"/") && !strings.HasPrefix(m.root+"/", at+"/") {
			return "", errOutside
		}
		info, err := os.Lstat(at)
		switch {
		case err != nil && last:
			return at, nil
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink != 0 && last && how.itself && len(rest) > 0:
			return "", fs.ErrInvalid
		case info.Mode()&fs.ModeSymlink != 0 && !(last && !how.follow && len(rest) == 0):
			if links++; links > 40 {
				return "", fs.ErrInvalid
			}
			target, _ := os.Readlink(at)
			at = path.Dir(at)
			if strings.HasPrefix(target, "/") {
				at = "/"
			}
			rest = append(strings.Split(target, "/"), rest...)
		case len(rest) > 0 && !info.IsDir():
			return "", fs.ErrInvalid
		}
	}
	if !strings.HasPrefix(at+"/", m.root+"/") {
		return "", errOutside
	}
	return at, nil
}

// apply carries out a request, and returns the output.
func (m *model) apply(r *Request) (string, error) {
	itself := r.Operation == OperationDelete || r.Operation == OperationMove
	at, err := m.real(r.Path, how{follow: r.Operation != OperationStat && !itself, itself: itself})
	if err != nil {
		return "", err
	}
	info, err := os.Lstat(at)
	switch r.Operation {
	case OperationRead:
		content, err := os.ReadFile(at)
		return string(content), err
	case OperationWrite:
		if strings.HasSuffix(r.Path, "/") || strings.HasSuffix(r.Path, "/.") || r.IfSHA256 != nil && err == nil {
			return "", fs.ErrExist
		}
		return "", os.WriteFile(at, r.Content, 0o644)
	case OperationEdit:
		content, err := os.ReadFile(at)
		if err != nil || bytes.Count(content, []byte(r.OldString)) != 1 {
			return "", fs.ErrInvalid
		}
		return "", os.WriteFile(at, bytes.Replace(content, []byte(r.OldString), []byte(r.NewString), 1), 0o644)
	case OperationMakeDirectory:
		if err == nil && info.IsDir() {
			return "", nil
		}
		return "", os.Mkdir(at, 0o755)
	case OperationDelete:
		if err != nil || at == m.root || info.IsDir() && !r.Recursive {
			return "", fs.ErrInvalid
		}
		return "", os.RemoveAll(at)
	case OperationMove:
		return "", m.move(at, r)
	case OperationGlob:
		return m.all(at)
	}
	return "", err
}

func (m *model) move(from string, r *Request) error {
	to, err := m.real(r.Destination, how{itself: true})
	if err != nil {
		return err
	}
	source, err := os.Lstat(from)
	if err != nil || from == m.root || to == m.root || from == to {
		return fs.ErrInvalid
	}
	slash := strings.HasSuffix(r.Destination, "/") || strings.HasSuffix(r.Destination, "/.")
	target, err := os.Lstat(to)
	if err == nil && (target.IsDir() || source.IsDir() || !r.Overwrite) || slash && !source.IsDir() {
		return fs.ErrExist
	}
	return os.Rename(from, to)
}

func (m *model) all(dir string) (string, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", fs.ErrInvalid
	}
	var out strings.Builder
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if p != dir {
			fmt.Fprintln(&out, strings.TrimPrefix(p, dir+"/"))
		}
		return err
	})
	return out.String(), err
}

// snapshot describes a tree.
func snapshot(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		what := d.Type().String()
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(p)
			what += " " + strings.ReplaceAll(target, root, "ROOT")
		case d.Type().IsRegular():
			content, _ := os.ReadFile(p)
			what += " " + string(content)
		}
		all[strings.TrimPrefix(p, root)] = what
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// request makes one at random.
func (d *dice) request() *Request {
	operations := []Operation{
		OperationWrite, OperationMakeDirectory, OperationRead, OperationMove, OperationDelete, OperationEdit, OperationGlob, OperationStat,
	}
	r := &Request{
		Operation: operations[d.roll(len(operations))], Path: d.path(), Destination: d.path(), Pattern: "**",
		Content: []byte(strings.Repeat("x", d.roll(3)) + "y"), OldString: "xy", NewString: "yx",
		Recursive: d.roll(2) == 1, Overwrite: d.roll(2) == 1,
	}
	if d.roll(4) == 1 {
		r.IfSHA256 = new("")
	}
	if r.Operation == OperationEdit {
		r.IfSHA256 = nil
	}
	return r
}

// FuzzOperations holds a tree that Do changes to one that package os changes: after each request both are the same, and
// nothing outside has changed.
func FuzzOperations(f *testing.F) {
	f.Add([]byte("seed"))
	for i := range 64 {
		f.Add([]byte(strings.Repeat(string([]byte{byte(i * 5), byte(i*11 + 2), byte(i*3 + 1), byte(i), byte(i * 7)}), 40)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newWorld(t)
		m := &model{root: newWorld(t).root}
		d := &dice{data: data}
		for i := 0; i < 60 && len(d.data) > 0; i++ {
			if d.roll(5) == 1 {
				d.plantLink(w.root, m.root)
				continue
			}
			compareOne(t, w, m, d.request())
		}
		w.checkOutside()
		w.checkNothingLeft()
	})
}

// plantLink makes the same link in both trees, which no operation can.
func (d *dice) plantLink(roots ...string) {
	name, target := "/"+[]string{"a", "b", "c", "a/b", "b/a"}[d.roll(5)], d.path()
	absolute := d.roll(2) == 1
	for _, root := range roots {
		// Through links of the tree nothing is planted.
		if info, err := os.Lstat(path.Dir(root + name)); err != nil || !info.IsDir() {
			continue
		}
		if absolute {
			_ = os.Symlink(root+"/"+target, root+name)
		} else {
			_ = os.Symlink(target, root+name)
		}
	}
}

func compareOne(t *testing.T, w *world, m *model, r *Request) {
	t.Helper()
	before := snapshot(t, m.root)
	want, wantErr := m.apply(r)
	out, result, err := w.do(*r)
	makesParents := r.Operation == OperationWrite || r.Operation == OperationMakeDirectory
	if err == nil && wantErr != nil && makesParents {
		// Parents were made; the model does what was reported.
		at := m.root + strings.TrimPrefix(result.Path, w.root)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatalf("%+v: %v, and the model: %v, %v", r, result, wantErr, err)
		}
		if r.Operation == OperationWrite {
			_ = os.WriteFile(at, r.Content, 0o644)
		} else {
			_ = os.Mkdir(at, 0o755)
		}
		if !result.Created {
			t.Errorf("%+v: nothing was created in %v, and the model fails with %v", r, before, wantErr)
		}
		wantErr = nil
	}
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%+v in %v:\n%v, want %v", r, before, err, wantErr)
	}
	if reason := reasonOf(err); reason == FileError || reason == NotSupported || reason == FileChanged || reason == "not a reason" {
		t.Errorf("%+v: %s: %v", r, reason, err)
	}
	if r.Operation == OperationGlob && err == nil {
		got, expected := found(t, out), strings.Fields(want)
		slices.Sort(got)
		slices.Sort(expected)
		if !slices.Equal(got, expected) {
			t.Errorf("%+v: %q, want %q", r, got, expected)
		}
	} else if r.Operation == OperationRead && out != want {
		t.Errorf("%+v: %q, want %q", r, out, want)
	}
	if diff := cmp.Diff(snapshot(t, m.root), snapshot(t, w.root)); diff != "" {
		t.Fatalf("%+v in %v: %v\n%s", r, before, err, diff)
	}
}

// FuzzGlob holds globs to another implementation, for globs and paths on which both agree what they mean.
func FuzzGlob(f *testing.F) {
	for _, seed := range []string{"**/a\x00b/a", "a/**\x00a", "*a?[b-d]\x00xaxc", "a/**/b\x00a/b", "**/*\x00a", `\*\x00*`, "[^a]\x00b", "a**b\x00a/b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data string) {
		glob, name, _ := strings.Cut(data, "\x00")
		p, err := compileGlob(glob)
		simple := regexp.MustCompile(`^[a-d*?/.]*$`)
		if err != nil || !simple.MatchString(glob) || strings.Contains(glob, "***") || !simple.MatchString(name) || path.Clean("/"+name) != "/"+name || name == "" {
			return
		}
		want, err := doublestar.Match(glob, name)
		if err != nil {
			return
		}
		if got := p.isMatch(name); got != want {
			t.Errorf("%q matches %q: %v, want %v", glob, name, got, want)
		}
		for dir := path.Dir(name); want && dir != "."; dir = path.Dir(dir) {
			if !p.mayMatchBelow(dir, strings.Count(dir, "/")+1) {
				t.Errorf("%q matches %q, and isn't looked for in %q", glob, name, dir)
			}
		}
	})
}

// FuzzGrep holds the search to the expression, line by line.
func FuzzGrep(f *testing.F) {
	for _, seed := range []string{
		"a+b\x00xaab\nab\n", "(?i)Key|Mask\x00KEY\nmaſk\n\u212aey\n", "foo|fob\x00fob\n", "(a|)b\x00b", "x{2}y\x00xxy\r\n", "^$\x00\n\n", "[^a]$\x00b\r\n",
		"\ufffd\x00\xff\n", "(?s)a.b\x00a\nb\n", "a(?i)B(?-i)c\x00aBc\nabc\nAbc", "a\nb\x00a\nb\n", "(?m)^a$\x00b\na\n", `a\b\x00ab\na b`,
	} {
		f.Add(seed, byte(3))
		f.Add(seed, byte(4))
	}
	f.Fuzz(func(t *testing.T, data string, small byte) {
		text, content, _ := strings.Cut(data, "\x00")
		p, err := compilePattern(text, false)
		if err != nil || strings.Contains(content, "\x00") {
			return
		}
		if small%2 == 0 {
			// As if a match took long.
			p.size = 2 * maxStepsAtOnce
		}
		var want []int64
		expr := regexp.MustCompile(text)
		for i, line := range strings.Split(content, "\n") {
			isLast := i == strings.Count(content, "\n")
			if isLast && line == "" {
				continue
			}
			if expr.MatchString(line) || strings.HasSuffix(line, "\r") && expr.MatchString(strings.TrimSuffix(line, "\r")) {
				want = append(want, int64(i+1))
			}
		}
		w := newWorld(t)
		file, err := os.Open(w.file("f", content))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		s := newSearcher(t.Context(), p, bounds{MaxResults, math.MaxInt64}, &compiledRules{})
		// A buffer that holds the longest line, but not the file.
		longest := 0
		for _, line := range strings.Split(content, "\n") {
			longest = max(longest, len(line)+1)
		}
		s.buffer = make([]byte, longest+1+int(small))
		h, err := s.file(int(file.Fd()), "f", int64(len(content)))
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, m := range h.found {
			got = append(got, m.number)
		}
		if len(want) <= MaxResults && !slices.Equal(got, want) {
			t.Errorf("%q in %q: lines %v, want %v (literals %v)", text, content, got, want, p.literals)
		}
	})
}
