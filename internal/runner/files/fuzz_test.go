package files

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/google/go-cmp/cmp"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/patterns"
	"toolcall.dev/operator/internal/spec"
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
		case err != nil && last && len(rest) > 0:
			// A link may lead to what has to be a directory, too.
			return at + "/", nil
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
func (m *model) apply(r *spec.File) (string, error) {
	itself := r.Operation == spec.OperationDelete || r.Operation == spec.OperationMove
	at, err := m.real(r.Path, how{follow: r.Operation != spec.OperationStat && !itself, itself: itself})
	if err != nil {
		return "", err
	}
	info, err := os.Lstat(at)
	switch r.Operation {
	case spec.OperationRead:
		content, err := os.ReadFile(at)
		return partOf(string(content), r), err
	case spec.OperationWrite:
		if strings.HasSuffix(r.Path, "/") || strings.HasSuffix(r.Path, "/.") || !holds(r, at) {
			return "", fs.ErrExist
		}
		return "", os.WriteFile(at, r.Content, 0o644)
	case spec.OperationEdit:
		return m.edit(at, r)
	case spec.OperationMakeDirectory:
		if err == nil && info.IsDir() {
			return "", nil
		}
		return "", os.Mkdir(at, 0o755)
	case spec.OperationDelete:
		if err != nil || at == m.root || info.IsDir() && !r.Recursive || comparesContent(r) && !holds(r, at) {
			return "", fs.ErrInvalid
		}
		return "", os.RemoveAll(at)
	case spec.OperationMove:
		return "", m.move(at, r)
	case spec.OperationGlob:
		return m.all(at, true)
	case spec.OperationList:
		return m.all(at, r.Recursive)
	case spec.OperationGrep:
		return m.grep(at, r)
	}
	return "", err
}

// comparesContent says that a request is for a file with certain content.
func comparesContent(r *spec.File) bool { return r.IfSHA256 != nil && *r.IfSHA256 != "" }

// holds says whether what is at a path is what a request is for.
func holds(r *spec.File, at string) bool {
	info, err := os.Lstat(at)
	switch {
	case r.IfSHA256 == nil:
		return true
	case *r.IfSHA256 == "":
		return err != nil
	case err != nil || !info.Mode().IsRegular():
		return false
	}
	content, err := os.ReadFile(at)
	return err == nil && sumOf(content) == *r.IfSHA256
}

// partOf is what a Read returns, and where the next one goes on.
func partOf(content string, r *spec.File) string {
	units, first := strings.SplitAfter(content, "\n"), max(r.Offset, 1)-1
	if r.Unit == spec.UnitBytes {
		units, first = strings.Split(content, ""), r.Offset
	}
	if last := len(units) - 1; last >= 0 && units[last] == "" {
		units = units[:last]
	}
	start := min(first, int64(len(units)))
	if r.Limit == 0 || start+r.Limit >= int64(len(units)) {
		return strings.Join(units[start:], "")
	}
	next := start + r.Limit
	if r.Unit != spec.UnitBytes {
		next++
	}
	return fmt.Sprint(strings.Join(units[start:start+r.Limit], ""), " next ", next)
}

func (m *model) edit(at string, r *spec.File) (string, error) {
	content, err := os.ReadFile(at)
	count := strings.Count(string(content), r.OldString)
	if err != nil || !holds(r, at) || count == 0 || count > 1 && !r.ReplaceAll {
		return "", fs.ErrInvalid
	}
	return fmt.Sprint(count), os.WriteFile(at, []byte(strings.ReplaceAll(string(content), r.OldString, r.NewString)), 0o644)
}

// grep is every line that matches, as PATH:NUMBER:LINE.
func (m *model) grep(at string, r *spec.File) (string, error) {
	text := r.Pattern
	if r.Literal {
		text = regexp.QuoteMeta(text)
	}
	expr := regexp.MustCompile(text)
	var out strings.Builder
	err := filepath.WalkDir(at, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || p != at && r.Glob != "" && path.Base(p) != r.Glob {
			return err
		}
		name := strings.TrimPrefix(p, at+"/")
		if p == at {
			name = path.Base(p)
		}
		content, err := os.ReadFile(p)
		for i, line := range strings.Split(strings.TrimSuffix(string(content), "\n"), "\n") {
			if expr.MatchString(line) {
				fmt.Fprintf(&out, "%s:%d:%s\n", name, i+1, line)
			}
		}
		return err
	})
	return out.String(), err
}

func (m *model) move(from string, r *spec.File) error {
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

func (m *model) all(dir string, recursive bool) (string, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", fs.ErrInvalid
	}
	var out strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if p == dir {
			return err
		}
		fmt.Fprintln(&out, strings.TrimPrefix(p, dir+"/"))
		if d.IsDir() && !recursive {
			return fs.SkipDir
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
func (d *dice) request(m *model) *spec.File {
	operations := []spec.Operation{
		spec.OperationWrite, spec.OperationMakeDirectory, spec.OperationRead, spec.OperationMove, spec.OperationDelete, spec.OperationEdit, spec.OperationGlob, spec.OperationStat,
		spec.OperationList, spec.OperationGrep,
	}
	r := &spec.File{
		Operation: operations[d.roll(len(operations))], Path: d.path(), Destination: d.path(), Pattern: "**",
		Content:   []byte(strings.Repeat("x", d.roll(3)) + "y" + []string{"", "\n", "\nxy", "\nxy\n"}[d.roll(4)]),
		OldString: "xy", NewString: "yx", ReplaceAll: d.roll(2) == 1, Recursive: d.roll(2) == 1, Overwrite: d.roll(2) == 1,
		IfSHA256: d.checksum(m), MaxResults: d.roll(4), Offset: int64(d.roll(5)), Limit: int64(d.roll(4)),
		Unit: []spec.Unit{"", spec.UnitLines, spec.UnitBytes}[d.roll(3)],
	}
	switch r.Operation {
	case spec.OperationGrep:
		r.Pattern, r.Literal, r.Glob = []string{"x", "^y", "x*y$"}[d.roll(3)], d.roll(2) == 1, []string{"", "a"}[d.roll(2)]
	case spec.OperationEdit:
		if r.IfSHA256 != nil && *r.IfSHA256 == "" {
			r.IfSHA256 = nil
		}
	}
	return r
}

// checksum is mostly none, or one that some file may have.
func (d *dice) checksum(m *model) *string {
	switch d.roll(8) {
	case 1, 2:
		return new("")
	case 3, 4:
		content, _ := os.ReadFile(m.root + "/" + []string{"a", "b", "a/b"}[d.roll(3)])
		return new(sumOf(content))
	}
	return nil
}

// FuzzOperations holds a tree that Do changes to one that package os changes: after each request both are the same, and
// nothing outside has changed.
func FuzzOperations(f *testing.F) {
	f.Add([]byte("seed"))
	for i := range 64 {
		f.Add([]byte(strings.Repeat(string([]byte{byte(i * 5), byte(i*11 + 2), byte(i*3 + 1), byte(i), byte(i * 7)}), 40)))
	}
	// Random ones reach more of what two operations do to each other.
	for i := range 64 {
		data := make([]byte, 600)
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(data)
		f.Add(data)
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
			compareOne(t, w, m, d.request(m))
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

func compareOne(t *testing.T, w *world, m *model, r *spec.File) {
	t.Helper()
	before := snapshot(t, m.root)
	want, wantErr := m.apply(r)
	out, result, err := w.do(*r)
	makesParents := r.Operation == spec.OperationWrite || r.Operation == spec.OperationMakeDirectory
	if err == nil && wantErr != nil && makesParents {
		// Parents were made; the model does what was reported.
		at := m.root + strings.TrimPrefix(result.Path, w.root)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatalf("%+v: %v, and the model: %v, %v", r, result, wantErr, err)
		}
		if r.Operation == spec.OperationWrite {
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
	isUnexpected := map[string]bool{reason.FileError: true, reason.NotSupported: true, reason.FileChanged: !comparesContent(r), "not a reason": true}
	if failed := reasonOf(err); isUnexpected[failed] {
		t.Errorf("%+v: %s: %v", r, failed, err)
	}
	if err == nil {
		compareAnswers(t, r, out, &result, want)
	}
	if diff := cmp.Diff(snapshot(t, m.root), snapshot(t, w.root)); diff != "" {
		t.Fatalf("%+v in %v: %v\n%s", r, before, err, diff)
	}
}

// compareAnswers compares what a request that changed nothing, or an Edit, says.
func compareAnswers(t *testing.T, r *spec.File, out string, result *Result, want string) {
	t.Helper()
	switch r.Operation {
	case spec.OperationRead:
		if result.NextOffset != nil {
			out = fmt.Sprint(out, " next ", *result.NextOffset)
		}
		if out != want || result.Truncated != (result.NextOffset != nil) {
			t.Errorf("%+v: %q, want %q (truncated: %v)", r, out, want, result.Truncated)
		}
	case spec.OperationEdit:
		if got := fmt.Sprint(number(result.Replaced)); got != want {
			t.Errorf("%+v: replaced %s, want %s", r, got, want)
		}
	case spec.OperationGlob:
		compareResults(t, r, found(t, out), result, want)
	case spec.OperationList:
		compareResults(t, r, entries(t, out), result, want)
	case spec.OperationGrep:
		lines := paths(decode[Match](t, out), func(m Match) string { return fmt.Sprintf("%s:%d:%s", m.Path, m.LineNumber, m.Line) })
		compareResults(t, r, lines, result, want)
	}
}

// compareResults compares results, of which there may be fewer than all when the request says so.
func compareResults(t *testing.T, r *spec.File, got []string, result *Result, want string) {
	t.Helper()
	all := strings.Fields(want)
	if isCut := r.MaxResults > 0 && len(all) > r.MaxResults; result.Truncated != isCut || isCut && len(got) != r.MaxResults {
		t.Errorf("%+v: %d results, truncated: %v; there are %q", r, len(got), result.Truncated, all)
	}
	slices.Sort(got)
	slices.Sort(all)
	if result.Truncated {
		all = slices.DeleteFunc(all, func(s string) bool { return !slices.Contains(got, s) })
	}
	if !slices.Equal(got, all) {
		t.Errorf("%+v: %q, want %q", r, got, all)
	}
}

// FuzzGlob holds globs to another implementation, for globs and paths on which both agree what they mean.
func FuzzGlob(f *testing.F) {
	for _, seed := range []string{"**/a\x00b/a", "a/**\x00a", "*a?[b-d]\x00xaxc", "a/**/b\x00a/b", "**/*\x00a", `\*\x00*`, "[^a]\x00b", "a**b\x00a/b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data string) {
		glob, name, _ := strings.Cut(data, "\x00")
		p, err := patterns.CompileGlob(glob, false)
		simple := regexp.MustCompile(`^[a-d*?/.]*$`)
		if err != nil || !simple.MatchString(glob) || strings.Contains(glob, "***") || strings.HasPrefix(glob, "./") || !simple.MatchString(name) || path.Clean("/"+name) != "/"+name || name == "" {
			return
		}
		want, err := doublestar.Match(glob, name)
		if err != nil {
			return
		}
		if got := p.IsMatch(name); got != want {
			t.Errorf("%q matches %q: %v, want %v", glob, name, got, want)
		}
		for dir := path.Dir(name); want && dir != "."; dir = path.Dir(dir) {
			if !p.MayMatchBelow(dir, strings.Count(dir, "/")+1) {
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
		expectLines(t, newWorld(t), text, content, small)
	})
}

// expectLines holds a search to the expression. A small number that is even has it match as if that took long.
func expectLines(t *testing.T, w *world, text, content string, small byte) {
	t.Helper()
	p, err := patterns.Compile(text, false)
	if err != nil || strings.Contains(content, "\x00") {
		return
	}
	if small%2 == 0 {
		p.Size = 2 * maxStepsAtOnce
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
	file, err := os.Open(w.file("f", content))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := testSearcher(t, p)
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
		got = append(got, m.LineNumber)
	}
	if len(want) <= MaxResults && !slices.Equal(got, want) {
		t.Errorf("%q in %q: lines %v, want %v (literals %v)", text, content, got, want, p.Literals)
	}
}

// TestGrepOnRandomExpressions is FuzzGrep with expressions that are always valid.
func TestGrepOnRandomExpressions(t *testing.T) {
	t.Parallel()
	w, random := newWorld(t), rand.New(rand.NewPCG(5, 6))
	characters := []string{"a", "b", "k", "S", "0", "_", " ", "-", "\n", "\n", "\r\n", "\r", "é", "ſ", "\u212a", "\ufffd", "\xff", "\xe2", "世"}
	for range 4000 {
		expr, content := randomExpression(random, 3), ""
		for range random.IntN(30) {
			content += characters[random.IntN(len(characters))]
		}
		expectLines(t, w, expr, content, byte(random.IntN(256)))
	}
}

// randomExpression nests operators to a depth.
func randomExpression(random *rand.Rand, depth int) string {
	atoms := []string{"a", "b", "[ak]", "[^a]", ".", `\w`, `\W`, `\d`, `\s`, "é", "[^é]", `\pL`, "(?i:[k])", "(?i:s)", "(?i:ab)", "(?s:.)", "\ufffd",
		`\n`, `\r`, "0", "^", "$", `\b`, `\B`, `\A`, `\z`, "(?m:^)", "(?m:$)", ""}
	if depth == 0 {
		return atoms[random.IntN(len(atoms))]
	}
	sub := func() string { return randomExpression(random, depth-1) }
	switch random.IntN(4) {
	case 0:
		return "(?:" + sub() + "|" + sub() + ")"
	case 1:
		return "(?:" + sub() + ")" + []string{"*", "+", "?", "*?", "{2}", "{1,3}", "{0,2}?"}[random.IntN(7)]
	default:
		return sub() + sub()
	}
}

// testSearcher returns a searcher without bounds.
func testSearcher(t *testing.T, p *patterns.Pattern) *searcher {
	c := &call{ctx: t.Context(), rules: &compiledRules{Rules: Rules{MaxOutputBytes: math.MaxInt64}}, req: &spec.File{}}
	return c.newSearcher(p)
}
